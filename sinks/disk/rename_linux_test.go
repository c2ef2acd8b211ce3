package disk

import (
	"errors"
	"os"
	"testing"
)

// TestRenameWhereLinksAreMissing: the way for file systems without links.
func TestRenameWhereLinksAreMissing(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() // a folder
	if err := errors.Join(root.WriteFile("from", []byte("new"), 0o600), root.Mkdir("a", 0o700), root.WriteFile("a/taken", []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
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
