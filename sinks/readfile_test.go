package sinks_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

// A file that never ends is not read whole.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("12345678"), 0o600))
	if data, err := sinks.ReadFile(path, 8); err != nil || string(data) != "12345678" {
		t.Errorf("%q, %v", data, err)
	}
	for _, large := range []string{path, "/dev/zero"} {
		if data, err := sinks.ReadFile(large, 7); !errors.Is(err, sinks.ErrTooLarge) {
			t.Errorf("%s: %d bytes, %v", large, len(data), err)
		}
	}
	_, err := sinks.ReadFile(path+"x", 8)
	require.ErrorIs(t, err, os.ErrNotExist)
}
