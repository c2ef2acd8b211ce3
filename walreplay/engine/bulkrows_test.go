package engine

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// Two keys of one hash are two.
func TestKeysOfOneHash(t *testing.T) {
	r, err := openRows(t.Context(), empty(t), filepath.Join(t.TempDir(), "rows"), spoolBuffer)
	require.NoError(t, err)
	x := newKeyIndex(r)
	_, hash, known := x.lookup([]byte("b"))
	require.False(t, known)
	n := x.add(hash)
	at, size, err := r.add(n, 0, false, &boltfile.KeyValue{Key: []byte("a"), Created: 2, Modified: 2, Version: 1})
	require.NoError(t, err)
	x.set(n, at, size)
	_, _, known = x.lookup([]byte("b"))
	require.False(t, known, "it was taken for the other key")
	require.NoError(t, r.close())
}
