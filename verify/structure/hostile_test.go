package structure

import (
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
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
