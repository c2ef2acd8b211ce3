package walreplay

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// scratchPrefix begins the name of every scratch folder, so that the next run
// finds what one that was killed has left.
const scratchPrefix = ".requorum-scratch-"

// IsScratch tells whether a folder of this name is a scratch folder: in use, or
// left by a run that was killed.
func IsScratch(name string) bool { return strings.HasPrefix(name, scratchPrefix) }

// ErrNoSpace says that the scratch folder's file system has not the room.
var ErrNoSpace = errors.New("not enough space")

// scratchOption is where the folder is named: by a person, or for an agent's job.
const scratchOption = "--scratch-dir, or in an agent's configuration with resources.scratch-dir"

// scratch is a folder that lives for as long as this process holds its lock.
type scratch struct {
	path string
	lock *os.File // the folder itself
	made []string // parents that were made for it, outermost first
}

// newScratch makes a scratch folder in dir, after it has removed those of runs
// that are dead. Where dir is not there it is made, as a restore into it does:
// so a run finds what the one before has left, however far that one came.
func newScratch(dir string) (_ *scratch, err error) {
	made, err := makeParents(dir)
	defer func() {
		if err != nil {
			unmake(made)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("make a scratch folder: %w: name another folder with "+scratchOption, err)
	}
	if err := sweepScratch(dir); err != nil {
		return nil, fmt.Errorf("clean up scratch folders in %s: %w", dir, err)
	}
	for {
		var random [6]byte
		rand.Read(random[:]) // never fails, by its documentation
		path := filepath.Join(dir, scratchPrefix+hex.EncodeToString(random[:]))
		if err := os.Mkdir(path, 0o700); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("make a scratch folder: %w: name another folder with "+scratchOption, err)
		}
		// Another run's sweep may take it for a dead one's before it is locked.
		lock, err := lockFolder(path)
		if err != nil {
			return nil, err
		}
		if lock != nil {
			return &scratch{path, lock, made}, nil
		}
	}
}

// lockFolder takes a folder's lock; nil where the folder is gone or locked.
func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, f.Close()
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(mine, now) {
		return nil, f.Close()
	}
	return f, nil
}

func sweepScratch(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if !IsScratch(e.Name()) || !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		lock, err := lockFolder(path)
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		if err := errors.Join(os.RemoveAll(path), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// remove ends it, with all that is in it.
func (s *scratch) remove() error {
	err := errors.Join(os.RemoveAll(s.path), s.lock.Close())
	unmake(s.made)
	return err
}

func makeParents(dir string) (made []string, err error) {
	var missing []string
	for path := dir; ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			if err != nil {
				return nil, err
			}
			break
		}
		missing = append(missing, path)
	}
	slices.Reverse(missing)
	for _, path := range missing {
		switch err := os.Mkdir(path, 0o700); {
		case err == nil:
			made = append(made, path)
		case !errors.Is(err, os.ErrExist):
			return made, err
		}
	}
	return made, nil
}

// unmake removes folders that were made, where nothing came to be in them.
func unmake(made []string) {
	for _, path := range slices.Backward(made) {
		_ = os.Remove(path)
	}
}

func (s *scratch) database() string { return filepath.Join(s.path, "db") }

// needs checks that the file system has room for so many bytes.
func (s *scratch) needs(bytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.path, &fs); err != nil {
		return fmt.Errorf("ask for the free space of %s: %w", s.path, err)
	}
	if free := int64(fs.Bavail) * int64(fs.Bsize); free < bytes { //nolint:unconvert // their types differ between systems
		return fmt.Errorf("%w in %s: about %d bytes are needed, %d are free: name a folder with more space with "+scratchOption, ErrNoSpace, filepath.Dir(s.path), bytes, free)
	}
	return nil
}

// ScratchFolder is a scratch folder for another package's files: it has one
// run's lock, and the next run in the same folder removes what a dead one left.
type ScratchFolder struct{ s *scratch }

// NewScratchFolder makes a scratch folder in dir, and dir itself where it is not
// there. Those that dead runs left in dir are removed. The caller ends it with
// Remove.
func NewScratchFolder(dir string) (*ScratchFolder, error) {
	s, err := newScratch(dir)
	if err != nil {
		return nil, err
	}
	return &ScratchFolder{s}, nil
}

// Path is the folder.
func (f *ScratchFolder) Path() string { return f.s.path }

// Lock is the open folder that carries the lock. A process that inherits it
// keeps the lock for as long as it lives.
func (f *ScratchFolder) Lock() *os.File { return f.s.lock }

// Remove removes the folder with all that is in it, and gives up the lock.
func (f *ScratchFolder) Remove() error { return f.s.remove() }

// Needs fails with ErrNoSpace where its file system has no room for so many
// bytes.
func (f *ScratchFolder) Needs(bytes int64) error { return f.s.needs(bytes) }
