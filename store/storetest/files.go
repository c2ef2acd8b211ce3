package storetest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files are the files and folders of a folder, each with its mode, time and content: what
// only reads there changes none of it.
func Files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Mode(), info.ModTime())
		if !info.Mode().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		all[path] += fmt.Sprintf(" %x", sha256.Sum256(data))
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}
