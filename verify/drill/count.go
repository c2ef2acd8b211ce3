package drill

import (
	"context"
	"hash/maphash"

	"github.com/requorum/requorum/snapshot/pages"
)

// keyID stands for a key: 128 bits of a hash with random seeds.
type keyID [2]uint64

// count goes through all rows again, now that it is known what is asked: the
// probes' answers, the number of keys, the newest changes, and what hangs on the
// chosen leases. It keeps about 50 bytes for each living key.
func (e *expected) count(ctx context.Context, db *pages.File) error {
	asked := map[string][]*probe{}
	for _, p := range e.probes {
		asked[p.key] = append(asked[p.key], p)
	}
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	living := map[keyID]struct{}{}
	attached := map[string]*lease{}
	err := eachRow(ctx, db, func(r row) error {
		if probes := asked[string(r.key)]; probes != nil {
			settle(probes, r)
		}
		id := keyID{maphash.Bytes(seeds[0], r.key), maphash.Bytes(seeds[1], r.key)}
		if _, there := living[id]; there == r.Deleted {
			if r.Deleted {
				delete(living, id)
				e.spanOf(r.key).keys--
			} else {
				living[id] = struct{}{}
				e.spanOf(r.key).keys++
			}
		}
		e.keepChange(r)
		if l := attached[string(r.key)]; l != nil {
			delete(attached, string(r.key))
			delete(l.keys, string(r.key))
		}
		e.noteOrphan(r)
		if l := e.leases[r.leased]; l != nil && l.chosen && !r.Deleted {
			attached[string(r.key)] = l
			l.keys[string(r.key)] = struct{}{}
		}
		return nil
	})
	e.live = int64(len(living))
	return err
}

// mostChanges bounds what is kept of the newest changes: a single revision may
// delete every key.
const mostChanges = 10_000

func (e *expected) keepChange(r row) {
	if r.Main <= e.changesFrom {
		return
	}
	if len(e.changes) == mostChanges {
		e.changes, e.changesFrom = nil, r.Main
		return
	}
	c := change{key: string(r.key), deleted: r.Deleted, at: r.Main}
	if !r.Deleted {
		c.state = stateOf(r)
	}
	e.changes = append(e.changes, c)
}

// mostOrphans bounds what is kept where the leases are gone altogether.
const mostOrphans = 1000

// noteOrphan keeps the keys whose newest row names a lease that is not there.
func (e *expected) noteOrphan(r row) {
	delete(e.orphans, string(r.key))
	if r.leased != 0 && !r.Deleted && e.leases[r.leased] == nil && len(e.orphans) < mostOrphans {
		e.orphans[string(r.key)] = r.leased
	}
}

// settle gives a row to the probes that it is the newest one for so far.
func settle(probes []*probe, r row) {
	for _, p := range probes {
		switch {
		case r.Main > p.revision:
		case r.Deleted:
			p.want = nil
		default:
			s := stateOf(r)
			p.want = &s
		}
	}
}
