package host

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// damage flips a bit in the middle of the first file whose name begins so.
func damage(t *testing.T, folder, name string) {
	t.Helper()
	done := false
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || done || d.IsDir() || !strings.HasPrefix(d.Name(), name) {
			return err
		}
		done = true
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil || !done {
		t.Fatalf("no file %s… in %s was damaged: %v", name, folder, err)
	}
}
