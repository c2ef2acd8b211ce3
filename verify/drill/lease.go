package drill

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/pages"
)

// lease is one of the image's.
type lease struct {
	id, ttl int64 // seconds
	// left is what it lives from the boot on: less than ttl where its cluster
	// noted how much was left (--experimental-enable-lease-checkpoint).
	left int64
	// chosen ones are asked for their keys.
	chosen bool
	keys   map[string]struct{}
}

// mostLeases is how many leases are asked for what hangs on them: where there
// are many, each may have many keys.
const mostLeases = 100

func readLeases(db *pages.File, o Options) (map[int64]*lease, error) {
	leases := map[int64]*lease{}
	bucket, err := db.Bucket([]byte("lease"))
	if err != nil || bucket == nil {
		return leases, err
	}
	var ids []int64
	err = bucket.ForEach(func(k, v []byte) error {
		var l leasepb.Lease
		if err := proto.Unmarshal(v, &l); err != nil || len(k) != 8 {
			return fmt.Errorf("lease %x cannot be decoded: %w", k, err)
		}
		if key := int64(binary.BigEndian.Uint64(k)); key != l.ID {
			return fmt.Errorf("lease %016x is kept as lease %016x", l.ID, key)
		}
		one := &lease{id: l.ID, ttl: max(l.TTL, minLeaseTTL), keys: map[string]struct{}{}}
		one.left = one.ttl
		if l.RemainingTTL > 0 {
			one.left = min(l.RemainingTTL, one.ttl)
		}
		leases[l.ID] = one
		ids = append(ids, l.ID)
		return nil
	})
	slices.Sort(ids)
	rand.New(o.Random).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(len(ids), mostLeases)] {
		leases[id].chosen = true
	}
	return leases, err
}

// minLeaseTTL is what the members raise shorter leases to: one and a half times
// etcd's election timeout of a second, rounded up.
const minLeaseTTL = 2
