package journal

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

// TestSuperseded: a rebuild that was begun supersedes nothing, one that was done
// does, after a restart as well, and an undo of its run takes that back.
func TestSuperseded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := open(t, dir)
	reopen := func() {
		t.Helper()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, dir)
	}
	const a, b, c = snapshot.ID(1), snapshot.ID(2), snapshot.ID(3)
	aside := func(run string) {
		add(t, j, Entry{Run: run, Step: Asiding, Aside: &restore.Aside{Run: run}})
		add(t, j, Entry{Run: run, Step: Asided})
	}
	aside("run-1")
	add(t, j, Entry{Run: "run-1", Step: Building, Built: &Built{Plan: "p", Old: a, New: b, Result: json.RawMessage(`1`)}})
	reopen()
	if s, built := j.Superseding(a), j.Built("run-1"); s != nil || built == nil || built.Done || built.Plan != "p" || built.Run != "run-1" {
		t.Errorf("begun: %+v %+v", s, built)
	}
	add(t, j, Entry{Run: "run-1", Step: Superseded, Built: &Built{Plan: "p", Old: a, New: b, Result: json.RawMessage(`2`)}})
	aside("run-2")
	add(t, j, Entry{Run: "run-2", Step: Superseded, Built: &Built{Plan: "q", Old: b, New: c}})
	reopen()
	if s := j.Superseding(a); s == nil || s.New != b || !s.Done || string(s.Result) != "2" {
		t.Errorf("done: %+v", s)
	}
	if s := j.Superseding(b); s == nil || s.New != c || s.Run != "run-2" {
		t.Errorf("done: %+v", s)
	}
	add(t, j, Entry{Run: "run-2", Step: Undoing})
	if j.Superseding(b) == nil {
		t.Error("an undo that has only begun took it back")
	}
	add(t, j, Entry{Run: "run-2", Step: Undone})
	reopen()
	if s, by := j.Superseding(b), j.TakenBack(b); s != nil || len(by) != 1 || by[0] != c || j.Built("run-2") != nil {
		t.Errorf("undone: %+v, %v", s, by)
	}
	if j.Superseding(a) == nil || len(j.TakenBack(a)) > 0 {
		t.Error("another run's rebuild was taken back")
	}
	aside("run-2")
	add(t, j, Entry{Run: "run-2", Step: Superseded, Built: &Built{Plan: "q", Old: b, New: c}})
	if j.Superseding(b) == nil || len(j.TakenBack(b)) > 0 {
		t.Error("what was built again counts as taken back")
	}
}
