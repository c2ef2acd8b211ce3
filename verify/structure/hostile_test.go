package structure

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// What is odd and no fault is listed up to the limit too: a bucket can be full of
// it.
func TestNotesAreBounded(t *testing.T) {
	m := newMade(t)
	m.put("a", "1")
	m.close()
	m.edit(func(tx *bolt.Tx) error {
		for i := range 1000 {
			if err := tx.Bucket([]byte("meta")).Put(fmt.Appendf(nil, "odd-%d", i), nil); err != nil {
				return err
			}
		}
		return nil
	})
	r := sound(t, m.bytes(), Options{MaxFindings: 7})
	if n := len(r.Notes); n != 8 || r.Notes[7] != "993 more of these are not listed" {
		t.Errorf("%d notes: %q", n, r.Notes[max(0, n-1):])
	}
}

// A bucket's name is shown so that no terminal obeys it, and no name takes the
// place of the root bucket's, where alone other buckets may be.
func TestHostileBucketNames(t *testing.T) {
	for _, name := range []string{"\x1b[2J\nall passed", "root bucket"} {
		m := newMade(t)
		m.put("a", "1")
		m.close()
		m.edit(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte(name))
			if err == nil {
				_, err = b.CreateBucket([]byte("inside"))
			}
			return err
		})
		r := checkBytes(t, m.bytes(), Options{})
		if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Text, "has a bucket \"inside\" inside") || strings.ContainsAny(r.Findings[0].Text, "\x1b\n") {
			t.Errorf("%q: %q", name, r.Findings)
		}
	}
}

// Pages that all extend over the same others, as no bbolt writes them, do not make
// the reading endless.
func TestPagesThatLieOnOneAnother(t *testing.T) {
	m := newMade(t)
	for i := range 3000 {
		m.put(fmt.Sprintf("key-%d", i), strings.Repeat("v", 300))
	}
	m.close()
	db := m.bytes()
	sound(t, db, Options{})
	last := uint64(len(db)/4096) - 1
	for id := uint64(2); id < last; id++ { // one in ten stays, so that the tree can be gone through
		h := boltfile.ParseHeader(db[id*4096:])
		if h.ID == id && h.Kind == leafKind && h.More == 0 && id%10 != 0 {
			binary.LittleEndian.PutUint32(db[id*4096+12:], uint32(last-id))
		}
	}
	r := checkBytes(t, db, Options{})
	if most := 4 * int64(len(db)); r.Bytes > most {
		t.Errorf("%d bytes were read of a database of %d", r.Bytes, len(db))
	}
	if !hasFinding(r, report.KindPage, "they lie on one another") {
		t.Errorf("findings %q", r.Findings)
	}
}
