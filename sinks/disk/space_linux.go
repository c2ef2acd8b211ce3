package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
