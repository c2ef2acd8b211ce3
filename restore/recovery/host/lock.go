package host

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy says that another process has a file's lock.
var ErrBusy = errors.New("another recovery of this cluster is at work")

// Lock locks a file, which is only read, until the caller closes it: for another process
// the error is ErrBusy. Where the file system has no such lock, as NFS for a file that is
// only read, there is none.
func Lock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = takeLock(f)
	for _, none := range []error{unix.EBADF, unix.ENOLCK, unix.EOPNOTSUPP, unix.ENOSYS} {
		if errors.Is(err, none) {
			return f, nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockPatience is longer than a program that was just started holds a copy of a file
// that has been closed.
const lockPatience = time.Second

// takeLock gives ErrBusy where another process has the lock.
func takeLock(f *os.File) error {
	for began := time.Now(); ; time.Sleep(lockPatience / 20) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Since(began) > lockPatience:
			return fmt.Errorf("%s: %w", f.Name(), ErrBusy)
		}
	}
}
