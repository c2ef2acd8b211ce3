package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// openForWriting opens the root, made where it is not there and never was. Its
// name is durable when this returns.
func (s *Sink) openForWriting(ctx context.Context) (*os.Root, error) {
	root, err := s.openRoot(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeRoot(s.path); err != nil {
			return nil, err
		}
		root, err = s.openRoot(ctx)
	}
	if err != nil {
		return nil, err
	}
	if !s.anchored.Load() {
		// Whoever made the root may have died before it was durable.
		err := s.syncFolderAt(filepath.Dir(s.path))
		if err != nil && !errors.Is(err, fs.ErrPermission) { // then we cannot have made it
			return nil, errors.Join(err, root.Close())
		}
		s.anchored.Store(true)
	}
	return root, nil
}

// openRoot opens the root for reading or writing. It is fs.ErrNotExist where
// there never was one, and errGone where there was, and did not come back in time.
func (s *Sink) openRoot(ctx context.Context) (root *os.Root, err error) {
	err = s.retry.Do(ctx, func(err error) bool { return errors.Is(err, errGone) }, func() error {
		root, err = s.tryRoot()
		return err
	})
	return root, err
}

func (s *Sink) tryRoot() (*os.Root, error) {
	was := s.wasSeen() // before it is opened: another call may make it meanwhile
	root, err := openFolder(s.path)
	if errors.Is(err, fs.ErrNotExist) && was {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	if err := s.recognize(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// openFolder opens a folder as a root. What is not a folder is syscall.ENOTDIR,
// which os.OpenRoot has only words for.
func openFolder(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err == nil {
		return root, nil
	}
	if info, statErr := os.Stat(path); statErr == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	return nil, err
}

// makeRoot makes the folder at path and those above it, each durable before
// the next.
func (s *Sink) makeRoot(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeRoot(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // somebody was faster; that it is a folder shows on opening
	}
	if err != nil {
		return err
	}
	return s.syncFolderAt(filepath.Dir(path))
}

func (s *Sink) syncFolderAt(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return s.syncAndClose(folder)
}

// makeFolders makes folder and those above it in the root, from the top. It
// fails with fs.ErrNotExist when a Delete removes one of them meanwhile.
func makeFolders(root *os.Root, folder string) error {
	for i := range len(folder) {
		if folder[i] == '/' {
			if err := makeFolder(root, folder[:i]); err != nil {
				return err
			}
		}
	}
	return makeFolder(root, folder)
}

func makeFolder(root *os.Root, folder string) error {
	err := root.Mkdir(folder, 0o700)
	if folder == "." || errors.Is(err, fs.ErrExist) {
		return nil // should it be a file, what is to be made in it fails
	}
	return err
}

// syncFolders makes the entries of folder durable, and those of each folder
// above it up to the root: who made one may not have come to sync it yet.
func (s *Sink) syncFolders(root *os.Root, folder string) error {
	for {
		opened, err := root.Open(folder)
		if err == nil {
			err = s.syncAndClose(opened)
		}
		if ignoreAbsent(err) != nil { // gone: with the object, deleted meanwhile
			return err
		}
		if folder == "." {
			return nil
		}
		folder = path.Dir(folder)
	}
}

func (s *Sink) syncAndClose(folder *os.File) error {
	err := s.sync(folder)
	if err != nil && cannotSync(err) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("sync folder %s: %w", folder.Name(), err)
	}
	return errors.Join(err, folder.Close())
}

// prune removes folder and those above it, as far as they are empty. That is
// tidiness and need not be durable.
func prune(root *os.Root, folder string) error {
	for ; folder != "."; folder = path.Dir(folder) {
		empty, err := removeEmpty(root, folder)
		if err != nil || !empty {
			return err
		}
	}
	return nil
}
