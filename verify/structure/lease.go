package structure

import (
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
)

// leaseRow decodes a lease and remembers its ID.
func (c *check) leaseRow(where string, key, value []byte) {
	if len(key) != 8 {
		c.found.add(report.KindLease, where, "key %s is no lease's ID", shown(key))
		return
	}
	id := binary.BigEndian.Uint64(key)
	c.db.leases = append(c.db.leases, id)
	where = fmt.Sprintf("%s, lease %x", where, id)
	var l leasepb.Lease
	if err := proto.Unmarshal(value, &l); err != nil {
		c.found.add(report.KindLease, where, "it cannot be decoded: %v", err)
		return
	}
	switch {
	case uint64(l.ID) != id:
		c.found.add(report.KindLease, where, "it says that its ID is %x", uint64(l.ID))
	case id == uint64(lease.NoLease):
		c.found.add(report.KindLease, where, "ID 0 means no lease")
	case l.TTL <= 0 || l.TTL > lease.MaxLeaseTTL:
		c.found.add(report.KindLease, where, "a TTL of %d seconds: etcd grants 1 to %d", l.TTL, lease.MaxLeaseTTL)
	case l.RemainingTTL < 0 || l.RemainingTTL > l.TTL:
		c.found.add(report.KindLease, where, "%d seconds remain, of %d", l.RemainingTTL, l.TTL)
	case len(l.ProtoReflect().GetUnknown()) > 0 && !c.db.meta.isNewer():
		c.found.add(report.KindLease, where, "it has fields that etcd does not know")
	}
}

// hasLease tells whether a lease exists.
func (d *contents) hasLease(id int64) bool {
	_, found := slices.BinarySearch(d.leases, uint64(id))
	return found
}
