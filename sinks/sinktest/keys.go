package sinktest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/signing"
)

// NewKeys are those of somebody who signs, and trusts nobody else.
func NewKeys(t testing.TB) signing.Keys {
	t.Helper()
	private, public, err := signing.NewKey()
	require.NoError(t, err)
	dir := t.TempDir()
	key, trust := filepath.Join(dir, "key"), filepath.Join(dir, "trust")
	require.NoError(t, os.WriteFile(key, private, 0o600))
	require.NoError(t, os.WriteFile(trust, append([]byte("ops@example.com "), public...), 0o600))
	keys, err := signing.Read(key, trust, nil)
	require.NoError(t, err)
	return keys
}
