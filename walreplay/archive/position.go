package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// position is what an archiver remembers: enough to go on capturing when it is
// started while the repository is away.
type position struct {
	Identity Identity       `json:"identity"`
	End      segment.Header `json:"end"`           // the last segment known to be archived
	Gap      *Gap           `json:"gap,omitempty"` // a full snapshot is due for it
	Held     held           `json:"held,omitzero"`
	Place    place          `json:"place,omitzero"` // the repository that it archives to
}

const positionFile = "position.json"

// readPosition gives the zero position where there is none, or none that is
// whole: it only saves time.
func readPosition(dir string) (position, error) {
	var p position
	data, err := os.ReadFile(filepath.Join(dir, positionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("read the archiver's position: %w", err)
	}
	if err := repository.Unseal(data, &p); err != nil {
		p = position{}
	}
	return p, nil
}

// write replaces the position at once.
func (p position) write(dir string) (err error) {
	data, err := repository.Seal(p)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, positionFile+".*") // 0600
	if err != nil {
		return fmt.Errorf("write the archiver's position: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the archiver's position: %w", errors.Join(err, os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, positionFile)); err != nil {
		return fmt.Errorf("write the archiver's position: %w", err)
	}
	return nil
}
