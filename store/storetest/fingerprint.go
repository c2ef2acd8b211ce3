package storetest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Fingerprint is the mode, size, time and content of all files and folders below
// some, by path: for tests of what must not be touched.
func Fingerprint(t testing.TB, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			var data []byte
			if info.Mode().IsRegular() {
				if data, err = os.ReadFile(path); err != nil {
					return err
				}
			}
			all[path] = fmt.Sprintf("%s %d %s %x", info.Mode(), info.Size(), info.ModTime(), sha256.Sum256(data))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
