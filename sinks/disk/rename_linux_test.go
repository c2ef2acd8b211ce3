package disk

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRenameWhereLinksAreMissing: the way for file systems without links.
func TestRenameWhereLinksAreMissing(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close() // a folder
	require.NoError(t, errors.Join(root.WriteFile("from", []byte("new"), 0o600), root.Mkdir("a", 0o700), root.WriteFile("a/taken", []byte("old"), 0o600)))
	if err := renameNew(root, "from", "a/taken"); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an object: %v", err)
	}
	if err := renameNew(root, "from", "gone/to"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("into a folder that is gone: %v", err)
	}
	if err := renameNew(root, "from", "a/to"); err != nil {
		t.Error(err)
	}
	if data, err := root.ReadFile("a/taken"); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
}
