package flagfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/restore"
)

// Sum is how a journal knows a file's text.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Apply keeps the old text and puts the new one in its place. It may be done again
// after anything; a text that is kept already is not overwritten.
func (e *Edit) Apply() error {
	if err := e.keep(); err != nil {
		return fmt.Errorf("keep the old text of %s: %w", e.Path, err)
	}
	if err := replace(e.Path, e.Path, e.After); err != nil {
		return fmt.Errorf("bring %s in line: %w", e.Path, err)
	}
	return nil
}

func (e *Edit) keep() error {
	if _, err := os.Lstat(e.Kept); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(e.Kept), 0o700); err != nil {
		return err
	}
	return replace(e.Kept, e.Path, e.Before)
}

// PutBack gives a file the text back that was kept, where it has the text that
// Apply gave it: sums of both tell. What somebody changed or moved since is left as it
// is, and said by back.
func PutBack(path, kept, before, after string) (back bool, err error) {
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("put the flags in %s back: %w", path, err)
	}
	switch Sum(now) {
	case before:
		return true, nil
	case after:
	default:
		return false, nil
	}
	old, err := os.ReadFile(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("put the flags in %s back: %w", path, err)
	}
	if Sum(old) != before {
		return false, nil // an undo of the data does not fail for it
	}
	return true, replace(path, path, old)
}

// replace writes a file whole, or not at all, with the owner, mode and label of
// another one.
func replace(path, like string, data []byte) (err error) {
	folder := filepath.Dir(path)
	// A dot in front: no kubelet reads it, wherever it is.
	f, err := os.CreateTemp(folder, ".requorum-flags-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := restore.Alike(f.Name(), like); err != nil {
		return err
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, data) {
		return errors.Join(err, errors.New("what was written is read otherwise"))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
