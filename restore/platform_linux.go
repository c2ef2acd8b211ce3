package restore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// clone makes dst a copy of src that shares its blocks; false where the file
// system cannot, and dst is as it was.
func clone(dst, src *os.File) bool {
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}

// logInUse reports whether another process holds the lock that etcd keeps on its
// WAL files.
func logInUse(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, err
	}
	return lock.Type != unix.F_UNLCK, nil
}

const selinuxName = "security.selinux"

func ownerOf(info fs.FileInfo) *Owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return &Owner{int(st.Uid), int(st.Gid)}
	}
	return nil
}

// labelOf reads the SELinux label; nil where there is none.
func labelOf(f *os.File) ([]byte, error) {
	buf := make([]byte, 1024)
	n, err := unix.Fgetxattr(int(f.Fd()), selinuxName, buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the SELinux label of %s: %w", f.Name(), err)
	}
	return buf[:n], nil
}

func setLabel(f *os.File, label []byte) error {
	if label == nil {
		return nil
	}
	if has, err := labelOf(f); err == nil && bytes.Equal(has, label) {
		return nil
	}
	if err := unix.Fsetxattr(int(f.Fd()), selinuxName, label, 0); err != nil {
		return fmt.Errorf("set the SELinux label of %s: %w", f.Name(), err)
	}
	return nil
}
