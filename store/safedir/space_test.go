package safedir

import (
	"path/filepath"
	"testing"
)

// A folder that is not there yet has the room of the one above.
func TestFree(t *testing.T) {
	dir := t.TempDir()
	here, known, err := Free(dir)
	if err != nil || known && here <= 0 {
		t.Fatal(here, known, err)
	}
	there, _, err := Free(filepath.Join(dir, "not", "there"))
	if err != nil || known && (there <= 0 || there > 2*here) {
		t.Errorf("%d bytes here, %d below (%v)", here, there, err)
	}
}
