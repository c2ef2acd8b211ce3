package drill

import (
	"math/rand/v2"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
)

// lease is one of the image's.
type lease struct {
	snapshot.Lease
	// chosen ones are asked for their keys.
	chosen bool
	keys   map[string]struct{}
}

// mostLeases is how many leases are asked for what hangs on them: where there
// are many, each may have many keys.
const mostLeases = 100

func readLeases(db *pages.File, o Options) (map[int64]*lease, error) {
	leases := map[int64]*lease{}
	var ids []int64
	err := snapshot.EachLease(db, func(l snapshot.Lease) error {
		leases[l.ID] = &lease{Lease: l, keys: map[string]struct{}{}}
		ids = append(ids, l.ID)
		return nil
	})
	rand.New(o.Random).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(len(ids), mostLeases)] {
		leases[id].chosen = true
	}
	return leases, err
}
