package host

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

func openHost(t *testing.T, dir string) *journal {
	t.Helper()
	j, err := openJournal(dir)
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

func addHost(t *testing.T, j *journal, e record) {
	t.Helper()
	require.NoError(t, j.Add(e))
}

// TestGoesOn: whatever byte a crash cut the file at, what was whole is known
// again, and what comes after it is too.
func TestGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := openHost(t, dir)
	decided := func(run string) record {
		return record{Run: run, Step: stepDecided, Decision: &Decision{Run: run, Epoch: 1, Data: []byte("1")}}
	}
	newest := func(j *journal) string {
		if d := j.Decided(); d != nil {
			return d.Run
		}
		return ""
	}
	addHost(t, j, decided("run-1"))
	addHost(t, j, record{Run: "run-1", Step: stepSetAside, Aside: &restore.Aside{Run: "run-1", Folder: "/x"}})
	addHost(t, j, record{Run: "run-1", Step: stepSetAsideDone})
	_, err := openJournal(dir)
	require.ErrorContains(t, err, "another recovery", "opened twice")
	j.Close()
	path := filepath.Join(dir, "journal.jsonl")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for cut := range len(data) + 1 {
		require.NoError(t, os.WriteFile(path, data[:cut], 0o600))
		j, err := openJournal(dir)
		require.NoError(t, err, "cut at %d", cut)
		lines := strings.Count(string(data[:cut]), "\n")
		a := j.Aside("run-1")
		if (newest(j) == "run-1") != (lines > 0) || (a != nil) != (lines > 1) || a != nil && a.Done != (lines > 2) {
			t.Fatalf("cut at %d: run %q, %+v", cut, newest(j), a)
		}
		addHost(t, j, decided("run-2"))
		j.Close()
		if j, err = openJournal(dir); err != nil || newest(j) != "run-2" {
			t.Fatalf("cut at %d, then %v", cut, err)
		}
		j.Close()
	}
}

func TestUndo(t *testing.T) {
	dir := t.TempDir()
	j := openHost(t, dir)
	for _, run := range []string{"run-1", "run-2"} {
		addHost(t, j, record{Run: run, Step: stepSetAside, Aside: &restore.Aside{Run: run}})
	}
	addHost(t, j, record{Run: "run-1", Step: stepUndo})
	if a := j.Aside("run-1"); a == nil || !a.Undoing || a.Done {
		t.Errorf("%+v", a)
	}
	addHost(t, j, record{Run: "run-1", Step: stepUndoDone})
	if all := j.Asides(); len(all) != 1 || all[0].Run != "run-2" {
		t.Errorf("%+v", all)
	}
	j.Close()
	if again := openHost(t, dir); len(again.Asides()) != 1 {
		t.Errorf("%+v", again.Asides())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journal.jsonl"), []byte("{\"step\":1}\n"), 0o600))
	_, err := openJournal(dir)
	require.Error(t, err, "a damaged line was read over")
}

// TestSuperseded: a rebuild that was begun supersedes nothing, one that was done
// does, after a restart as well, and an undo of its run takes that back.
func TestSuperseded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := openHost(t, dir)
	reopen := func() {
		t.Helper()
		require.NoError(t, j.Close())
		j = openHost(t, dir)
	}
	const a, b, c = snapshot.ID(1), snapshot.ID(2), snapshot.ID(3)
	aside := func(run string) {
		addHost(t, j, record{Run: run, Step: stepSetAside, Aside: &restore.Aside{Run: run}})
		addHost(t, j, record{Run: run, Step: stepSetAsideDone})
	}
	aside("run-1")
	addHost(t, j, record{Run: "run-1", Step: stepRebuild, Built: &builtRecord{Plan: "p", Old: a, New: b, Result: json.RawMessage(`1`)}})
	reopen()
	if s, built := j.Superseding(a), j.Built("run-1"); s != nil || built == nil || built.Done || built.Plan != "p" || built.Run != "run-1" {
		t.Errorf("begun: %+v %+v", s, built)
	}
	addHost(t, j, record{Run: "run-1", Step: stepSuperseded, Built: &builtRecord{Plan: "p", Old: a, New: b, Result: json.RawMessage(`2`)}})
	aside("run-2")
	addHost(t, j, record{Run: "run-2", Step: stepSuperseded, Built: &builtRecord{Plan: "q", Old: b, New: c}})
	reopen()
	if s := j.Superseding(a); s == nil || s.New != b || !s.Done || string(s.Result) != "2" {
		t.Errorf("done: %+v", s)
	}
	if s := j.Superseding(b); s == nil || s.New != c || s.Run != "run-2" {
		t.Errorf("done: %+v", s)
	}
	addHost(t, j, record{Run: "run-2", Step: stepUndo})
	if j.Superseding(b) == nil {
		t.Error("an undo that has only begun took it back")
	}
	addHost(t, j, record{Run: "run-2", Step: stepUndoDone})
	reopen()
	if s, by := j.Superseding(b), j.TakenBack(b); s != nil || len(by) != 1 || by[0] != c || j.Built("run-2") != nil {
		t.Errorf("undone: %+v, %v", s, by)
	}
	if j.Superseding(a) == nil || len(j.TakenBack(a)) > 0 {
		t.Error("another run's rebuild was taken back")
	}
	aside("run-2")
	addHost(t, j, record{Run: "run-2", Step: stepSuperseded, Built: &builtRecord{Plan: "q", Old: b, New: c}})
	if j.Superseding(b) == nil || len(j.TakenBack(b)) > 0 {
		t.Error("what was built again counts as taken back")
	}
}

// TestQuiesce: what ran before the first touch stays known whatever comes after, also
// to another process or run, until a resume.
func TestQuiesce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := openHost(t, dir)
	again := func() {
		t.Helper()
		j.Close()
		j = openHost(t, dir)
	}
	addHost(t, j, record{Run: "run-1", Step: stepQuiesce, Clients: []clientRecord{{Name: "a", Ran: true}, {Name: "b"}}})
	addHost(t, j, record{Run: "run-1", Step: stepClient, Clients: []clientRecord{{Name: "a", Phase: ClientStopped}}})
	addHost(t, j, record{Run: "run-1", Step: stepQuiesce, Clients: []clientRecord{{Name: "c", Ran: true}}})
	again()
	q := j.Quiesce()
	if a, b, c := q.Client("a"), q.Client("b"), q.Client("c"); !a.Ran || a.Phase != ClientStopped || b.Ran || b.Phase != "" || !c.Ran || q.Client("d") != nil {
		t.Errorf("%+v", q)
	}
	addHost(t, j, record{Run: "run-2", Step: stepQuiesce}) // goes on with it
	again()
	if q := j.Quiesce(); q == nil || len(q.Clients) != 3 {
		t.Errorf("%+v", q)
	}
	addHost(t, j, record{Run: "run-2", Step: stepResumed})
	again()
	if q := j.Quiesce(); q != nil {
		t.Errorf("%+v", q)
	}
}

// FuzzParse: a journal is read to its end, or refused; what is whole of it is read
// the same again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","run":"run-1","step":"decided","decision":{"run":"run-1","epoch":1,"data":{}}}` + "\n{\"ru"))
	f.Add([]byte(`{"run":"run-1","step":"set-aside","aside":{"run":"run-1"}}` + "\n" + `{"run":"run-1","step":"undo-done"}` + "\n"))
	f.Add([]byte("{\"step\":\"rebuild\"}\n{}\nnull\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := func(data []byte) (n int, whole int64, err error) {
			j := &journal{}
			whole, err = eachLine(bytes.NewReader(data), func(line []byte) error { n++; return j.take(line) })
			return n, whole, err
		}
		n, whole, err := lines(data)
		if err != nil {
			return
		}
		if whole > int64(len(data)) || n != bytes.Count(data[:whole], []byte("\n")) || bytes.Contains(data[whole:], []byte("\n")) {
			t.Fatalf("%d entries in %d of %d bytes", n, whole, len(data))
		}
		if again, all, err := lines(data[:whole]); err != nil || all != whole || again != n {
			t.Fatal(err)
		}
	})
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
