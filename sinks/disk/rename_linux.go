package disk

import (
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
