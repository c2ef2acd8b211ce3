package replaying

import (
	"context"
	"errors"

	"github.com/requorum/requorum/verify/difference"
	"github.com/requorum/requorum/walreplay/engine"
)

// mostLag is how many entries behind its raft index a database of etcd 3.4 is
// looked for at.
const mostLag = 1000

// lagging compares with the states behind the snapshot's raft index too. etcd 3.4
// writes the index with changes of keys and users only: leases, alarms, members
// and compactions that came later can be in the database already. The revision is
// exact, so the search ends before the entry that changes it.
//
// at is the result at the raft index itself, and stays so, as the replayed
// database does, where no state fits: the search is made on a copy.
func (p *proof) lagging(ctx context.Context, version string, at difference.Result) (_ difference.Result, err error) {
	if p.rebuilt.Recipe == nil || p.rebuilt.Recipe.Revision != p.facts.Revision {
		return at, nil
	}
	later := p.replayed
	if later.path, err = p.copyOf(ctx, p.rebuilt, "later"); err != nil {
		return at, err
	}
	o := p.o.walreplay(version, p.o.ScratchDir)
	eng, err := engine.Open(ctx, later.path, engine.Options{MinLeaseTTL: o.MinLeaseTTL, PersistCheckpoints: o.PersistCheckpoints, SourceVersion: version, Logger: o.Logger})
	if err != nil {
		return at, err
	}
	defer func() {
		if closed := eng.Close(); !errors.Is(closed, engine.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}()
	tried := 0
	for e, err := range p.h.Entries(ctx, p.facts.RaftIndex+1) {
		if err != nil {
			return at, err
		}
		if tried++; tried > mostLag {
			p.Reason = "its etcd 3.4 wrote the raft index with changes of keys only, and more than 1000 entries without any follow in the log: take a backup after a key was written"
			return at, nil
		}
		if err := eng.Apply(e); err != nil {
			return at, err
		}
		if eng.Revision() != p.facts.Revision {
			return at, nil
		}
		if err := eng.Commit(); err != nil {
			return at, err
		}
		result, fits, err := p.fits(ctx, &later)
		if err != nil {
			return at, err
		}
		if fits {
			p.replayed = later
			p.say("etcd 3.4 keeps the raft index with changes of keys only: the database is the one after entry %d", e.Index)
			return result, nil
		}
	}
	return at, nil
}

// fits compares the small buckets first, and all where they are the same.
func (p *proof) fits(ctx context.Context, d *database) (_ difference.Result, _ bool, err error) {
	if *d, err = d.now(); err != nil {
		return difference.Result{}, false, err
	}
	var failed error
	o := difference.Options{OwnPassword: p.ownPassword(ctx, &failed), WithoutKeys: true}
	result, err := p.compare(ctx, *d, p.own, o)
	if err = errors.Join(err, failed); err != nil || len(result.Findings) > 0 {
		return result, false, err
	}
	o.WithoutKeys = false
	result, err = p.compare(ctx, *d, p.own, o)
	return result, len(result.Findings) == 0, err
}
