// Package disk keeps objects as files below one folder.
//
// It keeps the promises of package sinks so:
//
//  1. An object is written to a temporary file below ".tmp", which its writer
//     locks. The next Create removes the files there that are not locked: their
//     writers have ended, however they ended.
//  2. The file gets its name by link(2), which fails when the name is taken.
//  3. Commit syncs the file, then its folder and every folder above it up to
//     the root.
//
// A root that a Sink has seen is not made again: should it vanish, or something
// else stand in its place, as when its file system is unmounted, every call
// waits for it, as long as Options.Retry says, and fails until it is back.
//
// Files are 0600, folders 0700. Nothing is written through a symbolic link that
// leads out of the root. What in the root is not a file with a valid name is
// not an object: it is left alone and not listed.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/requorum/requorum/sinks"
)

// Sink is a folder that holds objects. It keeps no connections and no open
// files between calls.
type Sink struct {
	path string

	up, down *sinks.Rate
	retry    sinks.Retry

	// seen is the root as it was first opened, under mu.
	mu   sync.Mutex
	seen seen

	// anchored says that the root's own name was synced by this Sink.
	anchored atomic.Bool
	// sync is (*os.File).Sync, except in tests of what follows when it fails.
	sync func(*os.File) error
}

var _ sinks.Sink = (*Sink)(nil)

// New returns the sink in the folder root, which need not exist: the first
// object that is written makes it. New itself does not look at the disk.
func New(root string) (*Sink, error) {
	if root == "" {
		return nil, errors.New("a disk sink needs the path of a folder")
	}
	path, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	return &Sink{path: path, sync: (*os.File).Sync}, nil
}

// Set sets limits, and how long a root that is gone is waited for; it is called
// before the first use.
func (s *Sink) Set(o sinks.Options) {
	s.up, s.down, s.retry = sinks.NewRate(o.Limits.Up), sinks.NewRate(o.Limits.Down), o.Retry
	if s.retry.Logger != nil {
		s.retry.Logger = s.retry.Logger.With("place", s.String())
	}
}

// String implements sinks.Sink.
func (s *Sink) String() string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(s.path)}).String()
}

// Close implements sinks.Sink; there is nothing to release.
func (s *Sink) Close() error { return nil }

// Abilities implements sinks.Sink. Exclusive creation is what link(2) is. Notes
// speak where objects lie in memory, or where folders cannot be synced.
func (s *Sink) Abilities(ctx context.Context) (sinks.Abilities, error) {
	if err := ctx.Err(); err != nil {
		return sinks.Abilities{}, s.failed("probe", "", err)
	}
	notes, err := s.notes(ctx)
	if err != nil {
		return sinks.Abilities{}, s.failed("probe", "", err)
	}
	return sinks.Abilities{ExclusiveCreate: true, Notes: notes}, nil
}

// notes say what the file system of the root, or of the folder that it will
// be made in, lacks.
func (s *Sink) notes(ctx context.Context) ([]string, error) {
	root, err := s.openRoot(ctx)
	if err == nil {
		err = root.Close()
	}
	if ignoreAbsent(err) != nil {
		return nil, err
	}
	folder, err := openNearest(s.path)
	if err != nil {
		return nil, err
	}
	defer folder.Close() //nolint:errcheck // it was not written to
	var notes []string
	if inMemory(folder) {
		notes = append(notes, fmt.Sprintf("%s lies in memory: everything there is gone when this machine restarts. Name a folder on a disk.", s))
	}
	if err := s.sync(folder); err != nil {
		if !cannotSync(err) {
			return nil, err
		}
		notes = append(notes, fmt.Sprintf("The file system of %s cannot sync folders: the newest objects may be gone after a power failure. Keep a copy elsewhere.", s))
	}
	return notes, nil
}

// openNearest opens path, or the nearest folder above it that exists.
func openNearest(path string) (*os.File, error) {
	for {
		folder, err := os.Open(path)
		parent := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || parent == path {
			return folder, err
		}
		path = parent
	}
}

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
