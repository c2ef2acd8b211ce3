package restore

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps two names in one step. errNoExchange where the file system
// has no such thing.
func exchange(a, b string) error {
	return rename("exchange", a, b, unix.RENAME_EXCHANGE)
}

// renameNew renames, and fails with os.ErrExist where the new name is taken;
// errNoExchange where the file system cannot promise that.
func renameNew(from, to string) error {
	return rename("rename", from, to, unix.RENAME_NOREPLACE)
}

func rename(op, from, to string, flags uint) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EXDEV) {
		return errNoExchange
	}
	if err != nil {
		return &os.LinkError{Op: op, Old: from, New: to, Err: err}
	}
	return nil
}

// clone makes dst a copy of src that shares its blocks; false where the file
// system cannot, and dst is as it was.
func clone(dst, src *os.File) bool {
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}

// logInUse tells whether another process holds the lock that etcd keeps on its
// WAL files.
func logInUse(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, err
	}
	return lock.Type != unix.F_UNLCK, nil
}

// freeBytes is what an ordinary user may still write to the file system.
func freeBytes(path string) (free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// beginWriteback asks the kernel to write a range to the disk, without waiting
// for it. What fails here fails in the sync at the end.
func beginWriteback(f *os.File, offset, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}
