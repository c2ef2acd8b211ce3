package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// notes tell what the file system of the root, or of the folder that it will
// be made in, lacks.
func (s *Sink) notes() ([]string, error) {
	root, err := s.openRoot()
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
