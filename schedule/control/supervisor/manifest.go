package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Manifest is one that the kubelet runs a pod for, while it lies in the manifest
// folder. It is moved by a second name and the removal of the first: whoever reads
// the folder sees all of it or nothing, and a name that is taken is never
// overwritten.
type Manifest struct {
	Path     string
	AsideDir string // where it lies meanwhile: outside the folder, on its file system
	// Container is the name that the container has in it.
	Container string
}

// Aside is where the manifest lies while it is away.
func (m Manifest) Aside() string { return filepath.Join(m.AsideDir, filepath.Base(m.Path)) }

// Where tells at which of its two places the manifest lies; both, where an attempt
// to move it was ended in between. It fails with fs.ErrNotExist where it lies at
// neither.
func (m Manifest) Where() (inPlace, aside bool, err error) {
	a, errA := os.Lstat(m.Path)
	b, errB := os.Lstat(m.Aside())
	for _, err := range []error{errA, errB} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, false, err
		}
	}
	inPlace, aside = errA == nil, errB == nil
	switch {
	case inPlace && aside && !os.SameFile(a, b):
		return false, false, fmt.Errorf("there is a manifest %s, and another one that was set aside, %s: something wrote a new one: move one of them away", m.Path, m.Aside())
	case inPlace && !a.Mode().IsRegular():
		return false, false, fmt.Errorf("manifest %s is no ordinary file", m.Path)
	case !inPlace && !aside:
		return false, false, fmt.Errorf("there is neither a manifest %s nor one that was set aside, %s: %w", m.Path, m.Aside(), fs.ErrNotExist)
	}
	return inPlace, aside, nil
}

// Check looks, without changing anything, whether the manifest could be taken away
// and come back whole, and whether the kubelet would have nothing left to run.
func (m Manifest) Check() error {
	if _, _, err := m.Where(); err != nil {
		return err
	}
	if err := m.sameFileSystem(); err != nil {
		return err
	}
	return m.Alone()
}

// TakeAway moves the manifest outside the folder, where it is in place.
func (m Manifest) TakeAway() error {
	inPlace, aside, err := m.Where()
	if err != nil || !inPlace {
		return err
	}
	if err := errors.Join(m.sameFileSystem(), m.Alone()); err != nil {
		return err
	}
	if err := os.MkdirAll(m.AsideDir, 0o700); err != nil {
		return err
	}
	if err := relocate(m.Path, m.Aside(), aside); err != nil {
		return fmt.Errorf("take the manifest away: %w", err)
	}
	return nil
}

// Return moves the manifest back, where it is away.
func (m Manifest) Return() error {
	inPlace, aside, err := m.Where()
	if err != nil || !aside {
		return err
	}
	if err := relocate(m.Aside(), m.Path, inPlace); err != nil {
		return fmt.Errorf("return the manifest: %w", err)
	}
	return nil
}

// sameFileSystem makes sure that the manifest can come back whole.
func (m Manifest) sameFileSystem() error {
	folder, err := os.Stat(filepath.Dir(m.Path))
	if err != nil {
		return err
	}
	at := m.AsideDir
	beside, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		beside, err = os.Stat(at)
	}
	if err != nil {
		return err
	}
	a, okA := folder.Sys().(*syscall.Stat_t)
	b, okB := beside.Sys().(*syscall.Stat_t)
	if okA && okB && a.Dev != b.Dev {
		return fmt.Errorf("static-pod.aside-dir %s lies on another file system than the manifest folder: name a folder from which the manifest can be returned in one step", m.AsideDir)
	}
	return nil
}

// relocate gives a file another name in one step. both says that an earlier
// attempt was ended when it had both.
func relocate(from, to string, both bool) error {
	if !both {
		if err := os.Link(from, to); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(to)); err != nil {
			return err
		}
	}
	if err := os.Remove(from); err != nil {
		return err
	}
	return syncDir(filepath.Dir(from))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
