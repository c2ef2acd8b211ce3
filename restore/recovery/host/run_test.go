package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func beginRun(t *testing.T, dir, id string) (*Folder, *Run) {
	t.Helper()
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	r, err := f.Begin(id)
	require.NoError(t, err)
	return f, r
}

func add(t *testing.T, r *Run, e Entry, data any) {
	t.Helper()
	if _, err := r.Add(e, data); err != nil {
		t.Fatal(err)
	}
}

// Promise 2: whatever byte a crash cut the file at, what was whole is known again,
// and what comes after it is too.
func TestTorn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f, r := beginRun(t, dir, "recovery-1")
	add(t, r, Entry{Event: EventDecided}, map[string]string{"a": "b"})
	add(t, r, Entry{Event: EventBegun, Phase: "fence", Host: "m1"}, nil)
	add(t, r, Entry{Event: EventDone, Phase: "fence", Host: "m1"}, []int{1})
	path := r.path()
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, p := range []string{path, filepath.Join(dir, "lock")} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", p, info.Mode(), err)
		}
	}
	for cut := range len(data) + 1 {
		require.NoError(t, os.WriteFile(path, data[:cut], 0o600))
		want := bytes.Count(data[:cut], []byte("\n"))
		runs, err := ReadFolder(dir)
		if err != nil || len(runs[0].Entries()) != want {
			t.Fatalf("cut at %d: read %v, %v", cut, runs, err)
		}
		if after, err := os.ReadFile(path); err != nil || len(after) != cut {
			t.Fatalf("cut at %d: reading changed the file", cut)
		}
		f, err := OpenFolder(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if n := len(f.Runs()); n != min(want, 1) {
			t.Fatalf("cut at %d: %d runs", cut, n)
		}
		r := f.runs[0]
		add(t, r, Entry{Event: EventUndoing}, nil)
		require.NoError(t, f.Close())
		if runs, err = ReadFolder(dir); err != nil || len(runs[0].Entries()) != want+1 || runs[0].Entries()[want].Event != EventUndoing {
			t.Fatalf("cut at %d, then %v", cut, err)
		}
	}
	require.NoError(t, os.WriteFile(path, []byte("{\"event\":1}\n{}\n"), 0o600))
	if _, err := OpenFolder(dir); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a damaged line was read over: %v", err)
	}
}

// Promise 3: one coordinator has the folder; reading takes no lock.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	f, r := beginRun(t, dir, "recovery-1")
	add(t, r, Entry{Event: EventDecided}, nil)
	if _, err := OpenFolder(dir); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	if runs, err := ReadFolder(dir); err != nil || len(runs) != 1 || runs[0].ID() != "recovery-1" {
		t.Errorf("%v %v", runs, err)
	}
	f.Close()
	if runs, err := ReadFolder(filepath.Join(dir, "none")); err != nil || len(runs) != 0 {
		t.Errorf("%v %v", runs, err)
	}
}

// Runs stay, in the order in which they were begun, whatever their IDs say.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	f, r := beginRun(t, dir, "recovery-9")
	add(t, r, Entry{Event: EventDecided}, nil)
	for _, id := range []string{"recovery-8", "recovery-7", "recovery-6", "recovery-5", "recovery-4", "recovery-3", "recovery-2", "recovery-1", "recovery-0"} {
		r, err := f.Begin(id)
		require.NoError(t, err)
		if id != "recovery-3" { // a crash came before its first entry
			add(t, r, Entry{Event: EventDecided}, nil)
		}
	}
	f.Close()
	again, err := OpenFolder(dir)
	require.NoError(t, err)
	defer again.Close()
	all := again.Runs()
	if len(all) != 9 || all[0].ID() != "recovery-9" || all[8].ID() != "recovery-0" {
		t.Errorf("%d runs", len(all))
	}
	next, err := again.Begin("recovery-a")
	if err != nil || filepath.Base(next.Folder()) != "0011-recovery-a" {
		t.Errorf("%v %v", next, err)
	}
}

// FuzzParse: a journal is read to its end, or refused; what is whole of it is read
// the same again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","event":"begun","phase":"fence","host":"m1"}` + "\n{\"ev"))
	f.Add([]byte("{}\nnull\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &Run{}
		whole, err := eachLine(bytes.NewReader(data), r.take)
		if err != nil {
			return
		}
		if whole > int64(len(data)) || len(r.entries) != bytes.Count(data[:whole], []byte("\n")) || bytes.Contains(data[whole:], []byte("\n")) {
			t.Fatalf("%d entries in %d of %d bytes", len(r.entries), whole, len(data))
		}
		all, r := r.entries, &Run{}
		n, err := eachLine(bytes.NewReader(data[:whole]), r.take)
		again := r.entries
		if err != nil || n != whole || len(again) != len(all) {
			t.Fatal(err)
		}
		for _, e := range all {
			if _, err := json.Marshal(e); err != nil {
				t.Fatal(err)
			}
		}
	})
}
