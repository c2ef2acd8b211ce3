package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// unnamed is a draft without a name (O_TMPFILE): it ends with its last
// descriptor, however the process ends.
type unnamed struct{ file *os.File }

// newUnnamed fails with errors.ErrUnsupported where the kernel, the file
// system or a missing /proc do not allow it.
func newUnnamed(root *os.Root) (draft, error) {
	folder, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer folder.Close() //nolint:errcheck // a folder that was only read
	var fd int
	err = again(func() (err error) {
		fd, err = unix.Openat(int(folder.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		return err
	})
	switch {
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL): // what kernels and file systems say that don't know the flag
		return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	case err != nil:
		return nil, &fs.PathError{Op: "open a file without a name in", Path: root.Name(), Err: err}
	}
	file := os.NewFile(uintptr(fd), path.Join(root.Name(), "(without a name)"))
	if _, err := os.Lstat(procPath(file)); err != nil {
		return nil, errors.Join(errors.ErrUnsupported, file.Close())
	}
	return &unnamed{file}, nil
}

func (d *unnamed) open() *os.File { return d.file }

func (d *unnamed) close() error { return d.file.Close() }

// publish links through /proc: linking the descriptor itself takes a
// capability.
func (d *unnamed) publish(root *os.Root, name string) error {
	folder, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // Commit syncs it
	err = again(func() error {
		return unix.Linkat(unix.AT_FDCWD, procPath(d.file), int(folder.Fd()), path.Base(name), unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return &fs.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

func procPath(file *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
}

// renameNew renames without replacing.
func renameNew(root *os.Root, from, to string) error {
	source, err := root.Open(path.Dir(from))
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // a folder of drafts, which are not durable
	target, err := root.Open(path.Dir(to))
	if err != nil {
		return err
	}
	defer target.Close() //nolint:errcheck // Commit syncs it
	err = again(func() error {
		return unix.Renameat2(int(source.Fd()), path.Base(from), int(target.Fd()), path.Base(to), unix.RENAME_NOREPLACE)
	})
	if err != nil {
		return &fs.PathError{Op: "link, and as that is not supported rename without replacing", Path: to, Err: err}
	}
	return nil
}

// withSpace adds to an error for want of space how much is left.
func withSpace(root *os.Root, err error) error {
	if !isFull(err) {
		return err
	}
	folder, openErr := root.Open(".")
	if openErr != nil {
		return err // the first error is the one that matters
	}
	defer folder.Close() //nolint:errcheck // a folder that was only read
	var stat unix.Statfs_t
	if again(func() error { return unix.Fstatfs(int(folder.Fd()), &stat) }) != nil {
		return err
	}
	return fmt.Errorf("%w (%d bytes and %d files are free there: make room, raise the quota or name another place)",
		err, stat.Bavail*uint64(stat.Bsize), stat.Ffree)
}

// inMemory says whether a folder's file system is kept in memory.
func inMemory(folder *os.File) bool {
	var stat unix.Statfs_t
	if again(func() error { return unix.Fstatfs(int(folder.Fd()), &stat) }) != nil {
		return false
	}
	magic := uint32(stat.Type) // it is signed, and wider on some machines
	return magic == unix.TMPFS_MAGIC || magic == unix.RAMFS_MAGIC
}
