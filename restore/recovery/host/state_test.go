package host

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

func stateIn(t *testing.T, dir string) *stateFile {
	t.Helper()
	s, err := openState(dir)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// reopened is what another process then reads.
func reopened(t *testing.T, s *stateFile) *stateFile {
	t.Helper()
	require.NoError(t, s.Close())
	return stateIn(t, filepath.Dir(s.path))
}

// TestStateFile: what was saved is known to the next process, which may change it only
// when this one has ended; a crash in the middle of a save leaves what was there.
func TestStateFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := stateIn(t, dir)
	require.NoError(t, s.decide(Decision{Run: run1, Epoch: 1, Data: []byte("1")}))
	s.Asides = append(s.Asides, SetAside{Aside: restore.Aside{Run: run1, Folder: "/x", LogFiles: map[string]uint64{"0.wal": 7}}})
	require.NoError(t, s.save())
	_, err := openState(dir)
	require.ErrorIs(t, err, ErrBusy, "opened twice")
	info, err := os.Stat(s.path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.WriteFile(s.path+".tmp", []byte(`{"changes":3,"deci`), 0o600))
	s = reopened(t, s)
	require.Equal(t, run1, s.Decided().Run)
	require.Equal(t, map[string]uint64{"0.wal": 7}, s.Aside(run1).LogFiles)
	require.Nil(t, s.Aside(run2))
	require.NoError(t, s.decide(Decision{Run: run2, Epoch: 2, Data: []byte("2")}))
	require.NoError(t, s.decide(Decision{Run: run1, Epoch: 3, Data: []byte("3")}))
	s = reopened(t, s)
	require.Equal(t, uint64(3), s.Decided().Epoch)
	require.Len(t, s.Decisions, 2, "one of each run")
	require.Equal(t, uint64(4), s.Changes)
	require.NoError(t, s.note(verbStop, Header{Member: "m1", Run: run1}))
	require.NoError(t, s.note(verbStart, Header{Member: "m1", Run: run1}))
	said, err := os.ReadFile(filepath.Join(dir, "actions.log"))
	require.NoError(t, err)
	require.Regexp(t, `^\{"time":"[^"]+","verb":"stop","member":"m1","run":"`+run1+`"\}\n\{"time":"[^"]+","verb":"start",.*\n$`, string(said))
}

// TestDamagedState: a state file that cannot be read to its end, or is none, is an error,
// and not one that remembers nothing. It stays as it is.
func TestDamagedState(t *testing.T) {
	dir := t.TempDir()
	s := stateIn(t, dir)
	s.Asides = append(s.Asides, SetAside{Aside: restore.Aside{Run: run1, Folder: "/x"}})
	require.NoError(t, s.save())
	require.NoError(t, s.Close())
	whole, err := os.ReadFile(s.path)
	require.NoError(t, err)
	damaged := []string{"null", "{}", string(whole) + "{}", `{"changes":1,"new":1}`}
	for cut := range len(whole) - 1 { // the last byte ends the line
		damaged = append(damaged, string(whole[:cut]))
	}
	for _, text := range damaged {
		require.NoError(t, os.WriteFile(s.path, []byte(text), 0o600))
		_, err := readState(dir)
		require.ErrorContains(t, err, s.path+" is damaged", "%q", text)
		_, err = openState(dir)
		require.ErrorContains(t, err, s.path+" is damaged", "%q", text)
		after, err := os.ReadFile(s.path)
		require.NoError(t, err)
		require.Equal(t, text, string(after))
	}
	require.NoError(t, os.Remove(s.path))
	require.NoError(t, os.Mkdir(s.path, 0o700)) // what cannot be read
	_, err = openState(dir)
	require.ErrorIs(t, err, syscall.EISDIR)
}

// TestMovedAway: a state file that was moved away does not come back with what it held.
func TestMovedAway(t *testing.T) {
	s := stateIn(t, t.TempDir())
	require.NoError(t, s.decide(Decision{Run: run1, Epoch: 1, Data: []byte("1")}))
	require.NoError(t, os.Rename(s.path, s.path+".old"))
	s.Epoch = 2
	require.ErrorIs(t, s.save(), os.ErrNotExist)
	require.Nil(t, reopened(t, s).Decided())
}

// TestSuperseded: a rebuild that was begun supersedes nothing, one that was done
// does, after a restart as well, and an undo of its run takes that back.
func TestSuperseded(t *testing.T) {
	s := stateIn(t, filepath.Join(t.TempDir(), "state"))
	const a, b, c = snapshot.ID(1), snapshot.ID(2), snapshot.ID(3)
	aside := func(run string) { s.Asides = append(s.Asides, SetAside{Aside: restore.Aside{Run: run}, Done: true}) }
	undone := func(run string) error { _, err := s.undone(Undone{Run: run}); return err }
	aside(run1)
	require.NoError(t, s.build(builtRecord{Run: run1, Plan: "p", Old: a, New: b, Result: json.RawMessage(`1`)}))
	s = reopened(t, s)
	require.Nil(t, s.Superseding(a), "begun")
	require.Equal(t, "p", s.BuiltBy(run1).Plan)
	require.NoError(t, s.build(builtRecord{Run: run1, Plan: "p", Old: a, New: b, Done: true, Result: json.RawMessage(`2`)}))
	aside(run2)
	require.NoError(t, s.build(builtRecord{Run: run2, Plan: "q", Old: b, New: c, Done: true}))
	s = reopened(t, s)
	require.Equal(t, b, s.Superseding(a).New)
	require.Equal(t, "2", string(s.BuiltBy(run1).Result))
	require.Equal(t, run2, s.Superseding(b).Run)
	s.Aside(run2).Undoing = true
	require.NoError(t, s.save())
	s = reopened(t, s)
	require.True(t, s.Aside(run2).Undoing)
	require.NotNil(t, s.Superseding(b), "an undo that has only begun took it back")
	require.NoError(t, undone(run2))
	s = reopened(t, s)
	require.Nil(t, s.Aside(run2))
	require.NotNil(t, s.Aside(run1))
	require.Nil(t, s.Superseding(b))
	require.Nil(t, s.BuiltBy(run2))
	require.Equal(t, []snapshot.ID{c}, s.TakenBack(b))
	require.NotNil(t, s.Superseding(a), "another run's rebuild was taken back")
	require.Empty(t, s.TakenBack(a))
	require.NoError(t, s.build(builtRecord{Run: run2, Plan: "q", Old: b, New: c, Done: true}))
	require.NotNil(t, s.Superseding(b))
	require.Empty(t, s.TakenBack(b), "what was built again counts as taken back")
	require.NoError(t, s.build(builtRecord{Run: "recovery-3", Plan: "r", Old: c, New: a}))
	require.NoError(t, undone("recovery-3"))
	require.Empty(t, s.TakenBack(c), "what was only begun counts as taken back")
}

// TestStateOnAFullDisk: what cannot be recorded is not done, in neither direction, and the
// same request does it once there is room.
func TestStateOnAFullDisk(t *testing.T) {
	cfg := quietHost(t)
	cfg.StateDir = storetest.SmallDisk(t, "1m")
	require.NoError(t, os.Chmod(cfg.StateDir, 0o700)) // other users write to no state folder
	line := lineTo(t, cfg, "test")
	decide(t, line, run1, 1)
	c := line.As(run1)
	database := filepath.Join(cfg.Member.DataDir, "member", "snap", "db")
	filler := filepath.Join(cfg.StateDir, "filler")
	fails := func(do func(context.Context) (*Done, error), want string) {
		t.Helper()
		require.ErrorIs(t, os.WriteFile(filler, make([]byte, 2<<20), 0o600), syscall.ENOSPC)
		_, err := do(t.Context())
		require.ErrorContains(t, err, "no space left on device")
		require.ErrorContains(t, err, cfg.StateDir)
		data, err := os.ReadFile(database)
		require.Equal(t, want, string(data), "%v", err)
		require.NoError(t, os.Remove(filler))
		_, err = do(t.Context())
		require.NoError(t, err)
	}
	fails(c.SetAside, "database")
	fails(c.Undo, "")
	data, err := os.ReadFile(database)
	require.NoError(t, err)
	require.Equal(t, "database", string(data))
}

// TestLock: one process has a file's lock.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o400))
	f, err := Lock(path)
	require.NoError(t, err)
	_, err = Lock(path)
	require.ErrorIs(t, err, ErrBusy, "locked twice")
	require.NoError(t, f.Close())
	if f, err := Lock(path); err != nil || f.Close() != nil {
		t.Error(err)
	}
}
