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
	require.ErrorIs(t, renameNew(root, "from", "a/taken"), os.ErrExist, "over an object")
	require.ErrorIs(t, renameNew(root, "from", "gone/to"), os.ErrNotExist, "into a folder that is gone")
	require.NoError(t, renameNew(root, "from", "a/to"))
	if data, err := root.ReadFile("a/taken"); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
}
