package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/requorum/requorum/sinks"
)

// failed words an error: what was tried, on which object, where, why it failed
// and what to do.
func (s *Sink) failed(verb, name string, err error) error {
	what := verb
	if name != "" {
		what += " " + name
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, sinks.ErrNotFound):
		return fmt.Errorf("%s in %s: %w", what, s, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s in %s: %w: %w: give the user that runs this the right to read, write and enter there", what, s, sinks.ErrDenied, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s in %s: %w: mount the file system for writing, or name another folder", what, s, err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s in %s: %w: a file stands where a folder is needed; name another folder", what, s, err)
	case errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("%s in %s: %w: one of the folders is another mount; mount it above or beside the root instead", what, s, err)
	}
	return fmt.Errorf("%s in %s: %w", what, s, err)
}

// isFull says whether err is for want of space, or of what a quota or a limit
// on the size of files allows.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// cannotSync says whether a folder refused to be synced because its file
// system has no such thing (SMB, some FUSE). What it then promises for names
// is its server's affair; Abilities carries a note.
func cannotSync(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported)
}

// notAnObject says what stands where an object was looked for.
func notAnObject(info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "a folder"
	case info.Mode()&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "a special file"
}
