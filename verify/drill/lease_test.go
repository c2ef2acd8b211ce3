package drill

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/pages"
)

// A lease ends when the time is over that its cluster noted as left, though it
// was granted for longer: etcd goes on with that after a boot.
func TestLeaseWithTimeLeftMayEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("lease"))
		if err != nil {
			return err
		}
		for id, left := range []int64{0, 5} {
			v, err := proto.Marshal(&leasepb.Lease{ID: int64(id), TTL: 3600, RemainingTTL: left})
			if err != nil {
				return err
			}
			if err := b.Put(binary.BigEndian.AppendUint64(nil, uint64(id)), v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p, err := pages.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	leases, err := readLeases(p, Options{Random: rand.NewPCG(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{drill: &drill{booting: time.Now().Add(-10 * time.Second)}}
	if s.mayHaveEnded(leases[0]) {
		t.Error("a lease of an hour may have ended after ten seconds")
	}
	if !s.mayHaveEnded(leases[1]) {
		t.Error("a lease with five seconds left cannot have ended after ten")
	}
}
