package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// tryLock locks file until it is closed, and says whether it could.
func tryLock(file *os.File) (bool, error) {
	err := again(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// remove removes a file, never a folder.
func remove(root *os.Root, name string) error { return unlink(root, name, 0) }

// removeEmpty removes a folder, never a file, and says whether it is gone.
func removeEmpty(root *os.Root, folder string) (bool, error) {
	err := unlink(root, folder, unix.AT_REMOVEDIR)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTDIR):
		return false, nil // in use again, a mount, or no folder any more
	}
	return false, err
}

func unlink(root *os.Root, name string, flags int) error {
	folder, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // the caller syncs it
	err = again(func() error { return unix.Unlinkat(int(folder.Fd()), path.Base(name), flags) })
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// again repeats a system call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
