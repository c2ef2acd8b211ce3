package recovertest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SetAside are the folders in the host's data directory that a recovery has set
// aside: each was a member folder.
func (h *Host) SetAside(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(h.DataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "member.") {
			all = append(all, filepath.Join(h.DataDir, e.Name()))
		}
	}
	return all
}
