package recovertest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/host"
)

// JournalLines counts the lines of the newest recovery's journal.
func (s *Site) JournalLines(t testing.TB) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(s.CoordinatorState(), "*", "journal.jsonl"))
	require.NoError(t, err)
	if len(all) == 0 {
		return 0
	}
	data, err := os.ReadFile(slices.Max(all))
	require.NoError(t, err)
	return bytes.Count(data, []byte("\n"))
}

// Recoveries counts those that have a journal.
func (s *Site) Recoveries(t testing.TB) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(s.CoordinatorState(), "*", "journal.jsonl"))
	require.NoError(t, err)
	return len(all)
}

// LastEvent is that of the newest journal's last line.
func (s *Site) LastEvent(t testing.TB) host.Event {
	t.Helper()
	runs, err := host.ReadFolder(s.CoordinatorState())
	if err != nil || len(runs) == 0 {
		t.Fatalf("the journals of recoveries: %v, %v", runs, err)
	}
	all := runs[len(runs)-1].Entries()
	return all[len(all)-1].Event
}

// AtLine calls do as soon as the newest journal has a number of lines; it gives
// false where the command ended before.
func (s *Site) AtLine(t testing.TB, r *Running, line int, do func()) bool {
	t.Helper()
	for s.JournalLines(t) < line {
		select {
		case <-r.Done():
			return false
		case <-time.After(500 * time.Microsecond):
		}
	}
	do()
	return true
}

// KillAtLine is kill -9 of the command once the journal has a number of lines.
// False: it ended before.
func (s *Site) KillAtLine(t testing.TB, r *Running, line int) bool {
	t.Helper()
	return s.AtLine(t, r, line, r.Kill) && r.cmd.ProcessState.ExitCode() < 0
}
