package replaying

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// CheckNewest replays the log behind the newest full snapshot of a timeline to its
// end, as a restore of the newest point would: no snapshot behind it proves these
// entries yet. What comes out is compared with the hashes that live members
// served on the way. done is false where the log does not go beyond the snapshot.
// The error is as Check's.
func CheckNewest(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, t repository.TimelineID, o Options) (check report.Check, done bool, err error) {
	k := newChecking(t.String()+"/log", o)
	h, err := walreplay.OpenArchive(ctx, repo, c, t, o.Identities...)
	if err != nil {
		k.err = err
		check, err = k.end(ctx)
		return check, true, err
	}
	bases := h.Bases()
	if len(bases) == 0 || h.Reach(bases[len(bases)-1]) == bases[len(bases)-1].Index() {
		return report.Check{}, false, nil
	}
	k.err = k.newest(ctx, h, bases[len(bases)-1])
	check, err = k.end(ctx)
	return check, true, err
}

func (k *checking) newest(ctx context.Context, h *walreplay.History, b *walreplay.Base) (err error) {
	o := k.o.walreplay(k.o.SourceVersion, k.o.ScratchDir)
	o.Stamps = walreplay.EveryStamp
	p, err := h.Resolve(ctx, walreplay.Target{Kind: walreplay.Latest}, b.ID, o)
	if err != nil {
		return err
	}
	r, err := h.Rebuild(ctx, p, o)
	var stamp *walreplay.StampError
	if errors.As(err, &stamp) {
		k.found(report.KindStamp, "", fmt.Sprintf("index %d", p.Last), "%v", stamp)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, t := range r.Phases {
		k.phaseTook(string(t.Phase), t.Took)
	}
	k.Bytes = r.Size() + p.Bytes
	k.say("the %d entries of the log behind %s (raft index %d) were applied to it by etcd's own applier, up to raft index %d: revision %d, HashKV %d; %d hashes that live members served on the way are equal, and %d could not be compared",
		r.Recipe.Entries, b.Name, b.Index(), r.Recipe.Index, r.Recipe.Revision, r.Recipe.HashKV.Hash, r.Stamps.Equal, r.Stamps.Passed)
	return nil
}
