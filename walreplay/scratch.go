package walreplay

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/store/safedir"
)

// scratchPrefix begins the name of every scratch folder, so that the next run
// finds what one that was killed has left.
const scratchPrefix = ".requorum-scratch-"

// IsScratch reports whether a folder of this name is a scratch folder: in use, or
// left by a run that was killed.
func IsScratch(name string) bool { return strings.HasPrefix(name, scratchPrefix) }

// ErrNoSpace says that the scratch folder's file system has not the room.
var ErrNoSpace = errors.New("not enough space")

// scratchOption is where the folder is named: by a person, or for an agent's job.
const scratchOption = "--scratch-dir, or in an agent's configuration with resources.scratch-dir"

// ScratchFolder is a folder for what is written on the way. It lives for as long as
// this process, or one that inherits the lock, holds that.
type ScratchFolder struct {
	path string // for messages: what lies there may be replaced, dir not
	dir  *safedir.Dir
	lock *os.File
	made []string // parents that were made for it, outermost first
}

// NewScratchFolder makes a scratch folder in dir, after it has removed those of runs
// that are dead. Where dir is not there it is made, as a restore into it does:
// so a run finds what the one before has left, however far that one came. The caller
// ends it with Remove.
func NewScratchFolder(dir string) (_ *ScratchFolder, err error) {
	made, err := makeParents(dir)
	defer func() {
		if err != nil {
			unmake(made)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("make a scratch folder: %w: name another folder with "+scratchOption, err)
	}
	if err := SweepScratch(dir); err != nil {
		return nil, fmt.Errorf("clean up scratch folders in %s: %w", dir, err)
	}
	for {
		var random [6]byte
		rand.Read(random[:]) // never fails, by its documentation
		path := filepath.Join(dir, scratchPrefix+hex.EncodeToString(random[:]))
		if err := safedir.Mkdir(path); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("make a scratch folder: %w: name another folder with "+scratchOption, err)
		}
		// Another run's sweep may take it for a dead one's before it is locked.
		s, err := lockScratch(path)
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.made = made
			return s, nil
		}
	}
}

// lockScratch takes a folder's lock; nil where the folder is gone or locked.
func lockScratch(path string) (*ScratchFolder, error) {
	dir, err := safedir.OpenPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lock, gone, err := dir.Lock()
	if errors.Is(err, safedir.ErrLocked) {
		gone, err = true, nil
	}
	if err != nil || gone {
		return nil, errors.Join(err, dir.Close())
	}
	return &ScratchFolder{path: path, dir: dir, lock: lock}, nil
}

// SweepScratch removes the scratch folders in dir that were left by runs that are dead.
func SweepScratch(dir string) error {
	all, err := safedir.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if !IsScratch(e.Name()) || !e.IsDir() {
			continue
		}
		s, err := lockScratch(filepath.Join(dir, e.Name()))
		if err != nil || s == nil {
			continue // another user's, or none: it is in nobody's way
		}
		if err := s.Remove(); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the folder with all that is in it, and gives up the lock.
func (s *ScratchFolder) Remove() error {
	err := s.dir.Empty(safedir.LockName)
	if err == nil { // the lock file goes last: without it the next run would not know the folder
		err = s.dir.Remove(safedir.LockName)
	}
	if err == nil {
		err = safedir.Remove(s.path)
		// Without its lock, another run's sweep may take it for a dead one's: then that
		// one removes it.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) {
			err = nil
		}
	}
	err = errors.Join(err, s.lock.Close(), s.dir.Close())
	unmake(s.made)
	return err
}

func makeParents(dir string) (made []string, err error) {
	var missing []string
	for path := dir; ; path = filepath.Dir(path) {
		if _, err := safedir.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return nil, err
			}
			break
		}
		missing = append(missing, path)
	}
	slices.Reverse(missing)
	for _, path := range missing {
		switch err := safedir.Mkdir(path); {
		case err == nil:
			made = append(made, path)
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	return made, nil
}

// unmake removes folders that were made, where nothing came to be in them.
func unmake(made []string) {
	for _, path := range slices.Backward(made) {
		_ = safedir.Remove(path)
	}
}

// Path leads into the folder, until Remove.
func (s *ScratchFolder) Path() string { return s.dir.Path() }

// Lock is the open file that carries the lock. A process that inherits it keeps the
// lock for as long as it lives.
func (s *ScratchFolder) Lock() *os.File { return s.lock }

func (s *ScratchFolder) database() string { return filepath.Join(s.dir.Path(), "db") }

// Needs fails with ErrNoSpace where the file system has no room for so many bytes.
func (s *ScratchFolder) Needs(bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir.Path(), &st); err != nil {
		return fmt.Errorf("ask for the free space of %s: %w", s.path, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < bytes { //nolint:unconvert // their types differ between systems
		return fmt.Errorf("%w in %s: about %s are needed, %s are free: name a folder with more space with "+scratchOption, ErrNoSpace, filepath.Dir(s.path), humanize.IBytes(uint64(bytes)), humanize.IBytes(uint64(free)))
	}
	return nil
}
