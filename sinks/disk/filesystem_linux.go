package disk

import (
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

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
