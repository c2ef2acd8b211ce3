package recovertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// journal is the host's, as far as it is written.
func (h *Host) journal(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.StateDir(), "journal.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}

// linesBehind counts the lines of the host's journal from an offset on, and gives its size.
func (h *Host) linesBehind(t testing.TB, offset int64) (lines int, size int64) {
	t.Helper()
	path := filepath.Join(h.StateDir(), "journal.jsonl")
	if info, err := os.Stat(path); err != nil || info.Size() == offset {
		return 0, offset // none is there yet, or nothing new in it
	}
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, offset, math.MaxInt64-offset))
	require.NoError(t, err)
	return bytes.Count(data, []byte("\n")), offset + int64(len(data))
}

// Steps counts what a recovery leaves for good, one after the other: the lines of all
// hosts' journals, and the objects of a repository that nobody else writes to.
func (s *Site) Steps(t testing.TB) (n int) {
	t.Helper()
	for _, h := range s.hosts {
		n += bytes.Count(h.journal(t), []byte("\n"))
	}
	return n + s.objects(t)
}

// objects counts those of a repository that no agent writes to.
func (s *Site) objects(t testing.TB) (n int) {
	t.Helper()
	if !s.options.NoAgents {
		return 0
	}
	err := filepath.WalkDir(strings.TrimPrefix(s.Repository, "file://"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			n++
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it was made for a moment
		}
		return err
	})
	require.NoError(t, err)
	return n
}

// stored is what is looked at of a decision that hosts have stored.
type stored struct {
	Run      string
	Epoch    uint64
	Finished bool
	Closed   string
}

// Decisions are all that hosts have stored, the newest last.
func (s *Site) Decisions(t testing.TB) (all []stored) {
	t.Helper()
	for _, h := range s.hosts {
		for line := range bytes.Lines(h.journal(t)) {
			var e struct {
				Decision *struct {
					Run   string
					Epoch uint64
					Data  stored
				}
			}
			if !bytes.HasSuffix(line, []byte("\n")) { // it is being written
				continue
			}
			require.NoError(t, json.Unmarshal(line, &e))
			if d := e.Decision; d != nil {
				all = append(all, stored{d.Run, d.Epoch, d.Data.Finished, d.Data.Closed})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b stored) int { return int(a.Epoch) - int(b.Epoch) })
	return all
}

// LastDecision is the newest.
func (s *Site) LastDecision(t testing.TB) stored {
	t.Helper()
	all := s.Decisions(t)
	if len(all) == 0 {
		t.Fatal("no host has stored a decision")
	}
	return all[len(all)-1]
}

// AtStep calls do as soon as there are a number of Steps; it gives false where the command
// ended before.
func (s *Site) AtStep(t testing.TB, r *Running, step int, do func()) bool {
	t.Helper()
	// Journals only grow, and are long: what was read is not read again.
	lines, read := 0, make([]int64, len(s.hosts))
	for {
		for i, h := range s.hosts {
			n, size := h.linesBehind(t, read[i])
			lines, read[i] = lines+n, size
		}
		if lines+s.objects(t) >= step {
			break
		}
		select {
		case <-r.Done():
			return false
		case <-time.After(500 * time.Microsecond):
		}
	}
	do()
	return true
}

// KillAtStep is kill -9 of the command once there are a number of Steps. False: it ended
// before.
func (s *Site) KillAtStep(t testing.TB, r *Running, step int) bool {
	t.Helper()
	return s.AtStep(t, r, step, r.Kill) && r.cmd.ProcessState.ExitCode() < 0
}
