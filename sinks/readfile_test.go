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

// A secret is the first line as it stands, spaces too, without the end of a line of any system.
func TestReadSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{
		"open sesame": "open sesame", "one\ntwo\n": "one", "one\r\ntwo": "one", " spaces count \n": " spaces count ",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		got, err := sinks.ReadSecret(file)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, content := range []string{"", "\nsecond", "\r\n"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := sinks.ReadSecret(file)
		require.ErrorContains(t, err, "the first line of "+file+" is empty", "%q", content)
	}
	_, err := sinks.ReadSecret("/dev/zero")
	require.ErrorIs(t, err, sinks.ErrTooLarge)
	_, err = sinks.ReadSecret(file + "-none")
	require.ErrorIs(t, err, os.ErrNotExist)
}
