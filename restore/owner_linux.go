package restore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

const selinuxName = "security.selinux"

func ownerOf(info fs.FileInfo) *Owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return &Owner{int(st.Uid), int(st.Gid)}
	}
	return nil
}

// labelOf reads the SELinux label; nil where there is none.
func labelOf(path string) ([]byte, error) {
	buf := make([]byte, 1024)
	n, err := unix.Lgetxattr(path, selinuxName, buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the SELinux label of %s: %w", path, err)
	}
	return buf[:n], nil
}

func setLabel(path string, label []byte) error {
	if label == nil {
		return nil
	}
	if has, err := labelOf(path); err == nil && bytes.Equal(has, label) {
		return nil
	}
	if err := unix.Lsetxattr(path, selinuxName, label, 0); err != nil {
		return fmt.Errorf("set the SELinux label of %s: %w", path, err)
	}
	return nil
}
