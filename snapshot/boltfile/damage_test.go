package boltfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// walk reads everything that can be reached, as hostile databases have it: a
// bucket's damage does not keep it from the next one.
func walk(b *Bucket, depth int) (keys int, failed error) {
	c := b.Cursor()
	for k, v, err := c.First(); k != nil || err != nil; k, v, err = c.Next() {
		if err != nil {
			return keys, err
		}
		keys++
		if v != nil || depth == 0 {
			continue
		}
		child, err := b.Bucket(k)
		if err == nil && child != nil {
			_, err = walk(child, depth-1)
		}
		if err != nil {
			failed = err
		}
	}
	if _, _, err := b.Last(); err != nil {
		failed = err
	}
	return keys, failed
}

func walkDB(db []byte) error {
	f, err := Open(context.Background(), bytes.NewReader(db), int64(len(db)))
	if err != nil {
		return err
	}
	inMemory, err := OpenBytes(context.Background(), db)
	if err != nil {
		return err
	}
	_, err = walk(f.Root(), 3)
	return errors.Join(err, walkElements(inMemory.Root(), 3))
}

// walkElements is walk by EachElement.
func walkElements(b *Bucket, depth int) error {
	return b.EachElement(func(e Element, _ int64) error {
		if !e.Bucket || depth == 0 {
			return nil
		}
		child, err := b.Bucket(e.Key)
		if err != nil || child == nil {
			return err
		}
		return walkElements(child, depth-1)
	})
}

// smallDB is one that is walked through in no time.
func smallDB(t testing.TB) []byte {
	return makeDB(t, 1<<10, func(tx *bolt.Tx) error {
		for _, name := range []string{"inline", "tree"} {
			b, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}
			for i := range byte(3) {
				if err := b.Put([]byte{'k', i}, []byte{i}); err != nil {
					return err
				}
			}
		}
		tree := tx.Bucket([]byte("tree"))
		for i := range byte(40) {
			if err := tree.Put([]byte{'k', i}, bytes.Repeat([]byte{i}, 100)); err != nil {
				return err
			}
		}
		return tree.Put([]byte("long"), make([]byte, 3000))
	})
}

// Promise 2: whatever byte is changed, reading ends, and an error names a page.
func TestEveryByteDamaged(t *testing.T) {
	db := smallDB(t)
	f, err := Open(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.NoError(t, err)
	db = db[:f.Size()]
	require.NoError(t, walkDB(db))
	rnd := rand.New(rand.NewPCG(1, 1))
	found := 0
	for i := range db {
		for _, value := range []byte{db[i] ^ 1<<rnd.IntN(8), 0xff} {
			damaged := bytes.Clone(db)
			damaged[i] = value
			err := walkDB(damaged)
			if err == nil {
				continue // in a value, in free space, or the other meta page
			}
			found++
			var page *PageError
			if !errors.As(err, &page) && !errors.Is(err, ErrNotDatabase) {
				t.Fatalf("byte %d = %#02x: %v", i, value, err)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d damages mattered", found)
	}
}

// A database that was cut off is found out when it is opened.
func TestCutOff(t *testing.T) {
	db := smallDB(t)
	f, err := Open(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.NoError(t, err)
	for n := range f.Size() {
		_, err = Open(t.Context(), bytes.NewReader(db[:n]), n)
		require.Error(t, err, "%d bytes of %d were opened", n, f.Size())
	}
}

// crafted makes a database of pages that bbolt would not write.
type crafted []byte

func newCrafted(pages int) crafted {
	c := make(crafted, pages*4096)
	binary.LittleEndian.PutUint32(c[headerSize:], magic)
	binary.LittleEndian.PutUint32(c[headerSize+4:], formatVersion)
	binary.LittleEndian.PutUint32(c[headerSize+8:], 4096)
	binary.LittleEndian.PutUint64(c[headerSize+16:], 2)
	binary.LittleEndian.PutUint64(c[headerSize+40:], uint64(pages))
	c.sum()
	return c
}

// sum sets the checksum of the meta page.
func (c crafted) sum() {
	binary.LittleEndian.PutUint64(c[headerSize+checksumAt:], fnv1a(c[headerSize:headerSize+checksumAt]))
}

func fnv1a(b []byte) uint64 {
	sum := uint64(14695981039346656037)
	for _, x := range b {
		sum = (sum ^ uint64(x)) * 1099511628211
	}
	return sum
}

func (c crafted) page(id, kind, count, more int) []byte {
	p := c[id*4096:][:4096]
	binary.LittleEndian.PutUint64(p, uint64(id))
	binary.LittleEndian.PutUint16(p[8:], uint16(kind))
	binary.LittleEndian.PutUint16(p[10:], uint16(count))
	binary.LittleEndian.PutUint32(p[12:], uint32(more))
	return p
}

// branch makes a page with as many children as fit, all of them the same.
func (c crafted) branch(id, count int, child func(i int) int) {
	p := c.page(id, branchPage, count, 0)
	for i := range count {
		e := p[headerSize+i*elementSize:]
		binary.LittleEndian.PutUint64(e[8:], uint64(child(i)))
	}
}

// Databases that were made to hang or to exhaust their reader.
func TestHostile(t *testing.T) {
	round := newCrafted(4)
	round.branch(2, 200, func(int) int { return 2 })
	circle := newCrafted(8)
	for id := 2; id < 8; id++ {
		circle.branch(id, 200, func(int) int { return 2 + (id-1)%6 })
	}
	// 200^36 ways to the one leaf.
	fan := newCrafted(40)
	for id := 2; id < 38; id++ {
		fan.branch(id, 200, func(int) int { return id + 1 })
	}
	fan.page(38, leafPage, 0, 0)
	outside := newCrafted(4)
	outside.branch(2, 1, func(int) int { return 1 << 60 })
	meta := newCrafted(4)
	meta.branch(2, 1, func(int) int { return 0 })
	long := newCrafted(4)
	long.page(2, leafPage, 0, 1<<31)
	crowded := newCrafted(4)
	crowded.page(2, leafPage, 0xffff, 0)
	freelist := newCrafted(4)
	freelist.page(2, 0x10, 0, 0)
	childless := newCrafted(4)
	childless.page(2, branchPage, 0, 0)
	manyPages := newCrafted(4)
	binary.LittleEndian.PutUint64(manyPages[headerSize+40:], 1<<52+1) // × 4096 overflows to 4096
	manyPages.sum()
	pageSize := newCrafted(4)
	binary.LittleEndian.PutUint32(pageSize[headerSize+8:], 0)
	pageSize.sum()
	bucket := newCrafted(4)
	b := bucket.page(2, leafPage, 1, 0)
	copy(b[headerSize:], []byte{bucketFlag, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 'b'})

	for name, db := range map[string]crafted{
		"a page that is its own child": round, "a circle": circle, "too many ways": fan, "a page outside": outside, "a meta page as data": meta,
		"a page without end": long, "too many elements": crowded, "a freelist as data": freelist, "no children": childless,
		"more pages than bytes": manyPages, "no page size": pageSize, "a bucket that is too short": bucket,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := walkDB(db)
		runtime.ReadMemStats(&after)
		t.Logf("%s: %v", name, err)
		if err == nil {
			t.Errorf("%s: not noticed", name)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

// A big-endian database is refused as such, not as damaged.
func TestBigEndian(t *testing.T) {
	db := newCrafted(4)
	binary.BigEndian.PutUint32(db[headerSize:], magic)
	require.ErrorIs(t, walkDB(db), ErrBigEndian)
}

// FuzzWalk reads databases in which anything may be anything, with meta pages
// that are intact.
func FuzzWalk(f *testing.F) {
	f.Add(smallDB(f))
	c := newCrafted(4)
	c.branch(2, 2, func(i int) int { return 3 - i })
	f.Add([]byte(c))
	f.Fuzz(func(t *testing.T, db []byte) {
		_ = walkDB(db) // that it returns is what is asked for
		if len(db) < headerSize+metaSize {
			return
		}
		db = bytes.Clone(db)
		crafted(db).sum()
		_ = walkDB(db)
	})
}
