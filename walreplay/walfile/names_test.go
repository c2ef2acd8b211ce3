package walfile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// The files that From names are enough, whichever entry a reader begins with: a
// log of many files, in which a new leader overwrote entries of files before.
func TestFrom(t *testing.T) {
	small(t, 4<<10)
	dir := filepath.Join(t.TempDir(), "wal")
	w := newWriter(t, dir, testIdentity)
	for i := uint64(1); i <= 90; i++ {
		w.save(0, entriesOf(i, i, 1, 300)...)
	}
	for i := uint64(71); i <= 160; i++ { // more than one file holds
		w.save(i, entriesOf(i, i, 2, 300)...)
	}
	w.close()
	var names []string
	list, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range list {
		names = append(names, e.Name())
	}
	slices.Reverse(names) // their order does not matter
	names = append(names, "0.tmp", "0000000000000099-0000000000000001.wal.broken")
	read := func(dir string, first uint64) (all []raftlog.Entry) {
		l, err := Open(dir)
		check(t, err)
		for e, err := range l.Entries(t.Context(), first) {
			check(t, err)
			e.Data = slices.Clone(e.Data)
			all = append(all, e)
		}
		return all
	}
	fewest, want, step := len(names), read(dir, 1), uint64(1)
	if testing.Short() {
		step = 9
	}
	for first := uint64(1); first <= 160; first += step {
		part := t.TempDir()
		needed := From(names, first)
		fewest = min(fewest, len(needed))
		for _, name := range needed {
			check(t, os.Link(filepath.Join(dir, name), filepath.Join(part, name)))
		}
		if got := read(part, first); !slices.EqualFunc(got, want[first-1:], raftlog.Entry.Equal) || len(want) != 160 {
			t.Fatalf("from entry %d on %d entries, of %v", first, len(got), needed)
		}
	}
	if fewest >= len(list)/2 {
		t.Errorf("of %d files never less than %d were needed", len(list), fewest)
	}
	if got := From([]string{"db"}, 7); got != nil {
		t.Errorf("%v", got)
	}
}

// The files of a log count, and no others.
func TestSize(t *testing.T) {
	dir := t.TempDir()
	for file, size := range map[string]int{name{0, 1}.String(): 100, name{1, 7}.String(): 20, "0.tmp": 3} {
		check(t, os.WriteFile(filepath.Join(dir, file), make([]byte, size), 0o600))
	}
	for dir, want := range map[string]int64{dir: 120, filepath.Join(dir, "none"): 0} {
		if got, err := Size(dir); err != nil || got != want {
			t.Errorf("%s: %d bytes, %v; want %d", dir, got, err, want)
		}
	}
}
