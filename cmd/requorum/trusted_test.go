package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/safedir"
)

// TestFilesOfOthers: configurations, and what is believed or opens backups, are read from no
// file that other users could have written.
func TestFilesOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o622)))
	for name, read := range map[string]func() error{
		"the agent's configuration": func() error { _, err := config.ReadWith(path, os.Getenv); return err },
		"the cluster file":          func() error { _, err := recovery.ReadConfig(path); return err },
	} {
		if err := read(); !errors.Is(err, safedir.ErrOthers) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
