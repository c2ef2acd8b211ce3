//go:build !linux

package disk

import (
	"io/fs"
	"os"
	"syscall"
)

// renameNew is for file systems without links, which only Linux lets rename
// without replacing.
func renameNew(_ *os.Root, _, to string) error {
	return &fs.PathError{Op: "link", Path: to, Err: syscall.EPERM}
}
