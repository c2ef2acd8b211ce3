package boltfile

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// A freelist of more than 65534 pages has its length before the first one.
func TestParseFreelist(t *testing.T) {
	make := func(count uint16, numbers ...uint64) []byte {
		b := make([]byte, headerSize)
		binary.LittleEndian.PutUint16(b[8:], freelistPage)
		binary.LittleEndian.PutUint16(b[10:], count)
		for _, n := range numbers {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	for name, test := range map[string]struct {
		b    []byte
		want int // -1 is an error
	}{
		"none":         {make(0), 0},
		"short":        {make(2, 7, 9, 11), 2},
		"long":         {make(longFreelist, 3, 7, 9, 11), 3},
		"cut":          {make(2, 7), -1},
		"long and cut": {make(longFreelist, 3, 7, 9), -1},
		"no length":    {make(longFreelist), -1},
		"huge":         {make(longFreelist, 1<<63), -1},
		"no page":      {nil, -1},
		"another page": {append([]byte{1, 0, 0, 0, 0, 0, 0, 0, leafPage}, make(0)...), -1},
	} {
		ids, err := ParseFreelist(test.b)
		if (err != nil) != (test.want < 0) || err == nil && (len(ids) != test.want || len(ids) > 0 && ids[0] != 7) {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
}

// What ParsePage takes for content is what bbolt put in, for each leaf that it
// writes, and all of its pages pass.
func TestParsePageTakesWhatBoltWrites(t *testing.T) {
	db := makeDB(t, 4096, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range byte(200) {
			if err == nil {
				err = b.Put([]byte{'k', i}, bytes.Repeat([]byte{i}, int(i)*int(i)/4+1))
			}
		}
		return err
	})
	f, err := Open(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.NoError(t, err)
	for id := range uint64(2) {
		if m, err := ParseMeta(db[id*4096:], id); err != nil || m.PageSize != 4096 {
			t.Errorf("meta page %d: %+v, %v", id, m, err)
		}
	}
	leaves := 0
	var check func(id uint64)
	check = func(id uint64) {
		b := db[id*4096:]
		h := ParseHeader(b)
		p, err := ParsePage(b[:(h.More+1)*4096])
		require.NoError(t, err, "page %d", id)
		var all []byte
		for i := range p.Len() {
			e := p.Element(i)
			switch {
			case !p.Leaf():
				check(e.Child)
			case e.Bucket:
				if root, _, err := ParseBucket(e.Value); err != nil || root == 0 {
					t.Errorf("bucket %s: %v", e.Key, err)
				} else {
					check(root)
				}
			}
			all = append(append(all, e.Key...), e.Value...)
		}
		if p.Leaf() {
			leaves++
			if !bytes.Equal(p.Content(0, p.Len()), all) {
				t.Errorf("page %d: content", id)
			}
		}
	}
	check(f.Meta().Root)
	if leaves < 10 {
		t.Errorf("%d leaves", leaves)
	}
}
