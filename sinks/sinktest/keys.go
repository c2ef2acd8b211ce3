package sinktest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/signing"
)

// NewKeys returns the keys of somebody who signs, and trusts nobody else.
func NewKeys(t testing.TB) signing.Keys {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	WriteKey(t, key)
	keys, err := signing.Read(key, key+".trust", nil)
	require.NoError(t, err)
	return keys
}

// WriteKey writes a key that signs to path, and to path.trust the line that names it in a
// file of trusted keys, as docs/keys.md makes them.
func WriteKey(t testing.TB, path string) {
	t.Helper()
	private, public, err := signing.NewKey()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, private, 0o600))
	require.NoError(t, os.WriteFile(path+".trust", append([]byte("ops@example.com "), public...), 0o600))
}
