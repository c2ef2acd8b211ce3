package recovertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// state is what a host remembers, which is replaced as a whole; nil where it is nothing.
func (h *Host) state(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.StateDir(), "state.json"))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return data
}

// Steps counts what a recovery leaves for good, one after the other: the changes of all
// hosts' state files, and the objects of a repository that nobody else writes to.
func (s *Site) Steps(t testing.TB) (n int) {
	t.Helper()
	for _, h := range s.hosts {
		if data := h.state(t); data != nil {
			var changes int // which stand first: to read all of it would take too long
			_, err := fmt.Sscanf(string(data), `{"changes":%d`, &changes)
			require.NoError(t, err)
			n += changes
		}
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

// Decisions are those that hosts have stored, one of each run and host, the newest last.
func (s *Site) Decisions(t testing.TB) (all []stored) {
	t.Helper()
	for _, h := range s.hosts {
		var s struct {
			Decisions []struct {
				Run   string
				Epoch uint64
				Data  stored
			}
		}
		if data := h.state(t); data != nil {
			require.NoError(t, json.Unmarshal(data, &s))
		}
		for _, d := range s.Decisions {
			all = append(all, stored{d.Run, d.Epoch, d.Data.Finished, d.Data.Closed})
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
func (s *Site) AtStep(t testing.TB, r *storetest.Running, step int, do func()) bool {
	t.Helper()
	for s.Steps(t) < step {
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
func (s *Site) KillAtStep(t testing.TB, r *storetest.Running, step int) bool {
	t.Helper()
	return s.AtStep(t, r, step, r.Kill) && r.Wait(t).Code < 0
}
