package boltfile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// makeDB lets bbolt make a database and returns its bytes.
func makeDB(t testing.TB, pageSize int, updates ...func(*bolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: pageSize, NoSync: true, NoFreelistSync: true})
	require.NoError(t, err)
	for _, update := range updates {
		require.NoError(t, db.Update(update))
	}
	require.NoError(t, db.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// fill makes buckets of every kind: empty, inline, of one page, of many, with
// values that extend over pages, and with buckets inside.
func fill(rnd *rand.Rand, keys int) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		var make func(b interface {
			CreateBucketIfNotExists([]byte) (*bolt.Bucket, error)
		}, depth int) error
		make = func(parent interface {
			CreateBucketIfNotExists([]byte) (*bolt.Bucket, error)
		}, depth int) error {
			for i, n := range []int{0, 1, 3, 200, keys} {
				b, err := parent.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket-%d", i))
				if err != nil {
					return err
				}
				for range n {
					key := fmt.Appendf(nil, "key-%d", rnd.IntN(4*n))
					value := bytes.Repeat([]byte{byte(rnd.Int())}, rnd.IntN(60))
					if rnd.IntN(100) == 0 {
						value = bytes.Repeat([]byte{byte(rnd.Int())}, rnd.IntN(300_000))
					}
					if err := b.Put(key, value); err != nil {
						return err
					}
				}
				if depth > 0 && i > 1 {
					if err := make(b, depth-1); err != nil {
						return err
					}
				}
			}
			return nil
		}
		return make(tx, 1)
	}
}

// remove deletes at random, so that pages become free and are used again.
func remove(rnd *rand.Rand) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("bucket-4"))
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if v != nil && rnd.IntN(3) > 0 {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// compare holds a bucket against bbolt's, with all that is inside.
func compare(t *testing.T, path string, theirs *bolt.Bucket, ours *Bucket) (keys int) {
	t.Helper()
	c := ours.Cursor()
	k, v, err := c.First()
	var last []byte
	direct := 0
	walk := theirs.ForEach(func(wantKey, wantValue []byte) error {
		if err != nil {
			return err
		}
		if !bytes.Equal(k, wantKey) || !bytes.Equal(v, wantValue) || (v == nil) != (wantValue == nil) {
			return fmt.Errorf("key %q is %q here, with %d bytes and %d", wantKey, k, len(wantValue), len(v))
		}
		got, err := ours.Get(wantKey)
		if err != nil || !bytes.Equal(got, wantValue) || (got == nil) != (wantValue == nil) {
			return fmt.Errorf("Get(%q): %d bytes, %w", wantKey, len(got), err)
		}
		if wantValue == nil {
			child, err := ours.Bucket(wantKey)
			if err != nil || child == nil {
				return fmt.Errorf("Bucket(%q): %v, %w", wantKey, child, err)
			}
			keys += compare(t, path+"/"+string(wantKey), theirs.Bucket(wantKey), child)
		}
		found, _, err := ours.Cursor().Seek(wantKey)
		if err != nil || !bytes.Equal(found, wantKey) {
			return fmt.Errorf("Seek(%q): %q, %w", wantKey, found, err)
		}
		after := append(bytes.Clone(wantKey), 0)
		wantNext, _ := theirs.Cursor().Seek(after)
		if next, _, err := ours.Cursor().Seek(after); err != nil || !bytes.Equal(next, wantNext) {
			return fmt.Errorf("Seek(%q): %q, not %q, %w", after, next, wantNext, err)
		}
		if got, err := ours.Get(after); err != nil || got != nil {
			return fmt.Errorf("Get(%q), which is not there: %q, %w", after, got, err)
		}
		keys++
		direct++
		last = bytes.Clone(wantKey)
		k, v, err = c.Next()
		return err
	})
	if walk != nil {
		t.Fatalf("%s: %v", path, walk)
	}
	if k != nil || err != nil {
		t.Fatalf("%s: %q, %v after the last key", path, k, err)
	}
	if k, _, err := ours.Last(); err != nil || !bytes.Equal(k, last) {
		t.Fatalf("%s: Last: %q, %v, not %q", path, k, err, last)
	}
	found := 0
	require.NoError(t, ours.EachElement(func(e Element, at int64) error {
		found++
		stored := make([]byte, len(e.Key)+len(e.Value))
		if err := ReadFull(ours.file.r, stored, at); err != nil || !bytes.Equal(stored, append(bytes.Clone(e.Key), e.Value...)) {
			return fmt.Errorf("%s: key %q is not at byte %d: %w", path, e.Key, at, err)
		}
		if want := theirs.Get(e.Key); e.Bucket != (want == nil) || want != nil && !bytes.Equal(want, e.Value) {
			return fmt.Errorf("%s: key %q has %d bytes, want %d", path, e.Key, len(e.Value), len(want))
		}
		return nil
	}))
	require.Equal(t, direct, found, path)
	return keys
}

// Promise 1: what bbolt finds is found, in databases of every page size that
// machines have.
func TestEverythingThatBboltFinds(t *testing.T) {
	for _, pageSize := range []int{1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(1, uint64(pageSize)))
			db := makeDB(t, pageSize, fill(rnd, 4000), remove(rnd), fill(rnd, 500))
			ours, err := Open(t.Context(), bytes.NewReader(db), int64(len(db)))
			require.NoError(t, err)
			inMemory, err := OpenBytes(t.Context(), db)
			require.NoError(t, err)
			if ours.PageSize() != pageSize || ours.Size() > int64(len(db)) {
				t.Errorf("page size %d, size %d of %d", ours.PageSize(), ours.Size(), len(db))
			}
			path := filepath.Join(t.TempDir(), "db")
			require.NoError(t, os.WriteFile(path, db, 0o600))
			theirs, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
			require.NoError(t, err)
			defer theirs.Close()
			err = theirs.View(func(tx *bolt.Tx) error {
				for _, f := range []*File{ours, inMemory} {
					if keys := compare(t, "", tx.Cursor().Bucket(), f.Root()); keys < 3000 {
						t.Errorf("only %d keys were compared", keys)
					}
				}
				return nil
			})
			require.NoError(t, err)
			if b, err := ours.Bucket([]byte("nothing")); b != nil || err != nil {
				t.Errorf("a bucket that is not there: %v, %v", b, err)
			}
		})
	}
}

// Of two meta pages the newer one counts, and either is enough.
func TestMetaPages(t *testing.T) {
	for _, pageSize := range []int{4 << 10, 64 << 10} {
		put := func(value string) func(*bolt.Tx) error {
			return func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				if err != nil {
					return err
				}
				return b.Put([]byte("k"), []byte(value))
			}
		}
		db := makeDB(t, pageSize, put("old"), put("new"))
		value := func(db []byte) string {
			t.Helper()
			f, err := Open(t.Context(), bytes.NewReader(db), int64(len(db)))
			require.NoError(t, err)
			b, err := f.Bucket([]byte("b"))
			require.NoError(t, err)
			v, err := b.Get([]byte("k"))
			require.NoError(t, err)
			return string(v)
		}
		seen := map[string]bool{}
		for _, damaged := range []int{0, 1} {
			torn := bytes.Clone(db)
			torn[damaged*pageSize+headerSize+20]++
			seen[value(torn)] = true
		}
		if value(db) != "new" || !seen["old"] || !seen["new"] {
			t.Errorf("page size %d: %q, and with one meta page torn %v", pageSize, value(db), seen)
		}
	}
}
