package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// Contents is all of a database: bucket, key, value.
type Contents map[string]map[string][]byte

// ReadContents reads a database that nobody has open, and checks its pages.
func ReadContents(t testing.TB, path string) Contents {
	t.Helper()
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := Contents{}
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s: %v", path, err)
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			rows := map[string][]byte{}
			c[string(name)] = rows
			return b.ForEach(func(k, v []byte) error {
				rows[string(k)] = bytes.Clone(v)
				return nil
			})
		})
	})
	require.NoError(t, err)
	return c
}

// Differences names each row, and each bucket, that is not as wanted.
func (c Contents) Differences(want Contents) []string {
	var all []string
	for _, name := range union(c, want) {
		for _, k := range union(c[name], want[name]) {
			a, here := c[name][k]
			b, there := want[name][k]
			if here != there || !bytes.Equal(a, b) {
				all = append(all, fmt.Sprintf("%s/%s: %s, want %s", name, printable(k), shown(a, here), shown(b, there)))
			}
		}
		if (c[name] == nil) != (want[name] == nil) {
			all = append(all, fmt.Sprintf("bucket %s is there: %v, want %v", name, c[name] != nil, want[name] != nil))
		}
	}
	return all
}

// union is the keys of both, in their order.
func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func printable(k string) string {
	for _, r := range []byte(k) {
		if r < ' ' || r > '~' {
			return fmt.Sprintf("%x", k)
		}
	}
	return k
}

func shown(v []byte, there bool) string {
	if !there {
		return "nothing"
	}
	return fmt.Sprintf("%.80q", v)
}
