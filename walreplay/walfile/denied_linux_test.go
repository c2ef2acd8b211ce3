package walfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks/sinktest"
)

// TestNoPermission: who may not read the log hears what to do.
func TestNoPermission(t *testing.T) {
	for _, denied := range []string{"the folder", "a file"} {
		t.Run(denied, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "wal")
			w := newWriter(t, dir, testIdentity)
			w.save(9, entriesOf(1, 10, 1, 100)...)
			w.close()
			path := dir
			if denied == "a file" {
				path = segments(t, dir)[0]
				for above := dir; above != os.TempDir(); above = filepath.Dir(above) {
					check(t, os.Chmod(above, 0o755))
				}
			}
			check(t, os.Chmod(path, 0))
			t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
			sinktest.AsNobody(t, func() {
				_, err := Open(dir)
				_, tailErr := OpenTail(dir, TailOptions{})
				for _, err := range []error{err, tailErr} {
					if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "CAP_DAC_READ_SEARCH") {
						t.Error(err)
					}
				}
			})
		})
	}
}
