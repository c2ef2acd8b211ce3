package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/restore"
)

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func add(t *testing.T, j *Journal, e Entry) {
	t.Helper()
	if err := j.Add(e); err != nil {
		t.Fatal(err)
	}
}

// TestGoesOn: whatever byte a crash cut the file at, what was whole is known
// again, and what comes after it is too.
func TestGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := open(t, dir)
	add(t, j, Entry{Run: "run-1", Step: Held})
	add(t, j, Entry{Run: "run-1", Step: Asiding, Aside: &restore.Aside{Run: "run-1", Folder: "/x"}})
	add(t, j, Entry{Run: "run-1", Step: Asided})
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "another control process") {
		t.Errorf("opened twice: %v", err)
	}
	j.Close()
	path := filepath.Join(dir, "journal.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for cut := range len(data) + 1 {
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		lines := strings.Count(string(data[:cut]), "\n")
		a := j.Aside("run-1")
		if (j.Run() == "run-1") != (lines > 0) || (a != nil) != (lines > 1) || a != nil && a.Done != (lines > 2) {
			t.Fatalf("cut at %d: run %q, %+v", cut, j.Run(), a)
		}
		add(t, j, Entry{Run: "run-2", Step: Held})
		j.Close()
		if j, err = Open(dir); err != nil || j.Run() != "run-2" {
			t.Fatalf("cut at %d, then %v", cut, err)
		}
		j.Close()
	}
}

func TestUndo(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for _, run := range []string{"run-1", "run-2"} {
		add(t, j, Entry{Run: run, Step: Held})
		add(t, j, Entry{Run: run, Step: Asiding, Aside: &restore.Aside{Run: run}})
	}
	add(t, j, Entry{Run: "run-1", Step: Undoing})
	if a := j.Aside("run-1"); a == nil || !a.Undoing || a.Done {
		t.Errorf("%+v", a)
	}
	add(t, j, Entry{Run: "run-1", Step: Undone})
	add(t, j, Entry{Run: "run-2", Step: Released})
	if all := j.Asides(); len(all) != 1 || all[0].Run != "run-2" || j.Run() != "" {
		t.Errorf("%+v %q", all, j.Run())
	}
	j.Close()
	if again := open(t, dir); len(again.Asides()) != 1 || again.Run() != "" {
		t.Errorf("%+v", again.Asides())
	}
	if err := os.WriteFile(filepath.Join(dir, "journal.jsonl"), []byte("{\"step\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a damaged line was read over")
	}
}
