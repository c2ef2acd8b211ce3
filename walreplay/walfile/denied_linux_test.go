package walfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs do with the file rights of a user who has none.
func asNobody(t *testing.T, do func()) {
	if os.Getuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked: it ends with the goroutine, and its
		// changed identity with it.
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

// TestNoPermission: who may not read the log is told what to do.
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
			asNobody(t, func() {
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
