//go:build !linux

package disk

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// renameNew is for file systems without links, which only Linux lets rename
// without replacing.
func renameNew(_ *os.Root, _, to string) error {
	return &fs.PathError{Op: "link", Path: to, Err: syscall.EPERM}
}

// withSpace adds to an error for want of space what to do.
func withSpace(_ *os.Root, err error) error {
	if !isFull(err) {
		return err
	}
	return fmt.Errorf("%w (make room, raise the quota or name another place)", err)
}

// inMemory is known on Linux only.
func inMemory(*os.File) bool { return false }
