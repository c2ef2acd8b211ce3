//go:build !linux

package safedir

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const searchFlags = unix.O_RDONLY

// direct is for Linux.
func direct(string, bool) (dir *Dir, base string, ok bool) { return nil, "", false }

// Path leads into the directory, for a library that takes a path. Elsewhere than
// on Linux it is the name by which it was opened.
func (d *Dir) Path() string { return d.path }

// Pinned is for Linux.
func (d *Dir) Pinned() string { return d.path }

func (*walk) enterMagic(string, string) (bool, error) { return false, nil }

// procFD is for hasACL.
func procFD(int) string { return "" }

// still is for Linux.
func (*Dir) still(int, string) (bool, error) { return true, nil }

// hasACL is for Linux.
func hasACL(string) bool { return false }

// lstat goes by the name: what it says is only looked at, and what is opened
// afterwards is looked at again.
func (d *Dir) lstat(name string) (fs.FileInfo, error) {
	return os.Lstat(filepath.Join(d.path, name))
}

// Exchange is for Linux.
func Exchange(string, string) error { return ErrNoExchange }

// RenameNew is for Linux.
func RenameNew(string, string) error { return ErrNoExchange }

func renameat(from int, a string, to int, b string, _ uint) error {
	return unix.Renameat(from, a, to, b)
}

// beginWriteback is for Linux: elsewhere the sync at the end alone writes to the disk.
func beginWriteback(*os.File, int64, int64) {}

// WrittenBack syncs the file.
func WrittenBack(f *os.File) error { return f.Sync() }

// free is not known on this platform.
func free(string) (free int64, known bool, err error) { return 0, false, nil }
