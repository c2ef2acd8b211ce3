package snapshot

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/pages"
)

// Lease is a lease of a database, in seconds.
type Lease struct {
	ID  int64 `json:"id"`
	TTL int64 `json:"ttl"` // that a member gives it
	// Left is what it lives from a start on: less than TTL where its cluster noted how
	// much was left (--experimental-enable-lease-checkpoint).
	Left int64 `json:"left"`
}

// MinLeaseTTL is what members raise shorter leases to, in seconds: one and a half
// times etcd's election timeout of a second, rounded up.
const MinLeaseTTL = 2

// EachLease calls do for all leases of a database, by ID. An error of do ends it.
func EachLease(db *pages.File, do func(Lease) error) error {
	bucket, err := db.Bucket([]byte("lease"))
	if err != nil || bucket == nil {
		return err
	}
	return bucket.ForEach(func(k, v []byte) error {
		var l leasepb.Lease
		if err := proto.Unmarshal(v, &l); err != nil || len(k) != 8 {
			return fmt.Errorf("lease %x cannot be decoded: %w", k, err)
		}
		if key := int64(binary.BigEndian.Uint64(k)); key != l.ID {
			return fmt.Errorf("lease %016x is kept as lease %016x", l.ID, key)
		}
		one := Lease{ID: l.ID, TTL: max(l.TTL, MinLeaseTTL)}
		one.Left = one.TTL
		if l.RemainingTTL > 0 {
			one.Left = min(l.RemainingTTL, one.TTL)
		}
		return do(one)
	})
}
