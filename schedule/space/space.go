// Package space tells how much room a folder has.
package space

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Free is how many bytes this user may still write to the file system that a
// folder is in, or would be in: that of the nearest folder above which is there.
// Known is false on platforms where it cannot be told.
func Free(dir string) (bytes int64, known bool, err error) {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return free(dir)
		}
		dir = filepath.Dir(dir)
	}
}
