package drill

import (
	"crypto/sha256"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// state is what a client sees of a key: all that a row says, with the value's
// sum instead of the value.
type state struct {
	create, mod, version, lease int64
	size                        int
	sum                         [sha256.Size]byte
}

// stateOf is what a row says. The modification is the row's own place: what it
// says of itself has to agree when it is served.
func stateOf(r row) state {
	return state{create: r.create, mod: r.Main, version: r.version, lease: r.leased, size: len(r.value), sum: sha256.Sum256(r.value)}
}

func served(kv *mvccpb.KeyValue) state {
	return state{
		create: kv.CreateRevision, mod: kv.ModRevision, version: kv.Version, lease: kv.Lease,
		size: len(kv.Value), sum: sha256.Sum256(kv.Value),
	}
}

// differs says how what was served differs from what is in the database, without
// showing values; empty where it does not.
func (want state) differs(got state) string {
	switch {
	case got.mod != want.mod:
		return fmt.Sprintf("modified at revision %d is served, and %d is in the database", got.mod, want.mod)
	case got.create != want.create:
		return fmt.Sprintf("created at revision %d is served, and %d is in the database", got.create, want.create)
	case got.version != want.version:
		return fmt.Sprintf("version %d is served, and %d is in the database", got.version, want.version)
	case got.lease != want.lease:
		return fmt.Sprintf("lease %016x is served, and %016x is in the database", got.lease, want.lease)
	case got.size != want.size:
		return fmt.Sprintf("a value of %d bytes is served, and one of %d is in the database", got.size, want.size)
	case got.sum != want.sum:
		return fmt.Sprintf("another value of the same %d bytes is served than is in the database", got.size)
	}
	return ""
}

// probe is one read and what has to come of it.
type probe struct {
	key      string
	revision int64
	want     *state // nil: no such key
}

// change is an event that a watch has to tell.
type change struct {
	key     string
	deleted bool
	at      int64
	state   state
}
