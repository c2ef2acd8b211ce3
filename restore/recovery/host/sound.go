package host

import (
	"context"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

type checkBase func(ctx context.Context, name string, r io.ReaderAt, size int64) error

// fileState is a file as it was at a time: whatever is written to it changes its times.
type fileState struct {
	device, inode    uint64
	size             int64
	modified, status unix.Timespec
}

// onceEach has a file that was found sound checked once: the survey reads a member's
// database whole, and the rebuild begins from the same file, which was only set aside
// meanwhile. A file that was changed, and one that was not sound, is checked again.
func onceEach(check checkBase) checkBase {
	var (
		mu    sync.Mutex
		sound = map[fileState]bool{}
	)
	return func(ctx context.Context, name string, r io.ReaderAt, size int64) error {
		f, ok := r.(*os.File)
		if !ok {
			return check(ctx, name, r, size)
		}
		before, err := stateOf(f)
		if err != nil {
			return err
		}
		mu.Lock()
		known := sound[before]
		mu.Unlock()
		if known {
			return nil
		}
		if err := check(ctx, name, r, size); err != nil {
			return err
		}
		after, err := stateOf(f)
		if err == nil && after == before {
			mu.Lock()
			sound[before] = true
			mu.Unlock()
		}
		return err
	}
}

func stateOf(f *os.File) (s fileState, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return s, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return fileState{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}, nil //nolint:unconvert // their types differ between systems
}
