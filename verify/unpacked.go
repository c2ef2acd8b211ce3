package verify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// scratchCopy is a backup unpacked into a file, as etcdctl would have saved it:
// what looks at pages needs them in any order. It is written while the bytes are
// compared, so that they are fetched once.
type scratchCopy struct {
	file *os.File
	path string
	err  error         // of writing: it must not pass for damage of what was read
	took time.Duration // to read and write it
}

// fetched is the phase of a recovery that made it.
func (s *scratchCopy) fetched() report.Phase { return report.Phase{Name: "fetch", Took: s.took} }

// makeCopy makes the file for a backup; where there is no room, or no need, it is
// nil, with the reason for the former.
func (e *examination) makeCopy(m *snapshot.Manifest) (_ *scratchCopy, reason string) {
	if !e.Rung.Includes(report.Structure) {
		return nil, ""
	}
	unpacked, err := e.copyOf(m)
	if err != nil {
		return nil, fmt.Sprintf("there is nowhere to unpack it: %v", err)
	}
	return unpacked, ""
}

func (e *examination) copyOf(m *snapshot.Manifest) (*scratchCopy, error) {
	if e.scratch == nil {
		s, err := walreplay.NewScratchFolder(e.ScratchDir)
		if err != nil {
			return nil, err
		}
		e.scratch = s
	}
	if err := e.scratch.Needs(m.Object.RawSize); err != nil {
		return nil, err
	}
	path := filepath.Join(e.scratch.Path(), m.ID+".db")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &scratchCopy{file: f, path: path}, nil
}

// Write takes the database's next bytes.
func (s *scratchCopy) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.file.Write(p)
	}
	return len(p), nil
}

// close ends the database with its SHA-256.
func (s *scratchCopy) close(sum []byte) { s.Write(sum) } //nolint:errcheck // s.err has it

// remove removes the file, if there is one.
func (s *scratchCopy) remove() error {
	if s == nil {
		return nil
	}
	err := s.file.Close()
	if rm := os.Remove(s.path); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}
