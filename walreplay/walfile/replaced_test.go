package walfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplaced: a log that another one took the place of is an error at each
// Poll, and never silence.
func TestReplaced(t *testing.T) {
	anew := func(t *testing.T, dir string) {
		w := newWriter(t, dir, Identity{ClusterID: 0xc1, MemberID: 0xa9})
		w.save(3, entriesOf(1, 3, 1, 10)...)
		check(t, w.Sync())
	}
	for name, replace := range map[string]func(t *testing.T, dir string, all []string){
		"the directory": func(t *testing.T, dir string, _ []string) {
			check(t, os.Rename(dir, dir+".old"))
			anew(t, dir)
		},
		"the directory, by a later log": func(t *testing.T, dir string, _ []string) {
			check(t, os.Rename(dir, dir+".old"))
			check(t, os.Mkdir(dir, 0o700))
			write(t, dir, 0x50, 101, newSegment(7).crc().metadata(testIdentity).entry(101, 2, "").bytes)
		},
		"the files": func(t *testing.T, dir string, all []string) {
			for _, s := range all {
				check(t, os.Remove(s))
			}
			anew(t, dir+".new")
			for _, s := range segments(t, dir+".new") {
				check(t, os.Rename(s, filepath.Join(dir, filepath.Base(s))))
			}
		},
		"the newest file": func(t *testing.T, dir string, all []string) {
			last := all[len(all)-1]
			b, err := os.ReadFile(last)
			check(t, err)
			check(t, os.Remove(last))
			check(t, os.WriteFile(last, b, 0o600))
		},
		"the newest file's name": func(t *testing.T, dir string, all []string) {
			last := all[len(all)-1]
			n, _ := parseName(filepath.Base(last))
			n.index++
			check(t, os.Rename(last, filepath.Join(dir, n.String())))
		},
		"by an older state": func(t *testing.T, dir string, all []string) {
			last := all[len(all)-1]
			ends := frames(t, last)
			check(t, os.Truncate(last, ends[len(ends)-2]))
		},
		"by nothing": func(t *testing.T, dir string, all []string) {
			for _, s := range all {
				check(t, os.Remove(s))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			small(t, 4<<10)
			dir := filepath.Join(t.TempDir(), "wal")
			w := newWriter(t, dir, testIdentity)
			for i := uint64(1); i <= 100; i += 10 {
				w.save(i, entriesOf(i, i+9, 1, 100)...)
			}
			check(t, w.Sync())
			tail := openTail(t, dir, TailOptions{})
			poll(t, tail)
			all := segments(t, dir)
			replace(t, dir, all)
			for range 2 {
				require.ErrorIs(t, tail.Poll(t.Context()), ErrReplaced)
			}
			if tail.Last() != 100 {
				t.Fatal("what was read is gone")
			}
		})
	}
}

// TestDirectoryAway: a directory that is away for a moment, such as a mount, is
// an error, and the Tail goes on when it is back.
func TestDirectoryAway(t *testing.T) {
	small(t, 64<<10)
	dir := filepath.Join(t.TempDir(), "wal")
	w := newWriter(t, dir, testIdentity)
	w.save(1, entriesOf(1, 1, 1, 10)...)
	tail := openTail(t, dir, TailOptions{})
	poll(t, tail)
	check(t, os.Rename(dir, dir+".away"))
	require.ErrorIs(t, tail.Poll(t.Context()), os.ErrNotExist)
	check(t, os.Rename(dir+".away", dir))
	w.save(2, entriesOf(2, 2, 1, 10)...)
	poll(t, tail)
	if tail.Last() != 2 {
		t.Fatalf("read to %d", tail.Last())
	}
}

// TestStaleListing: a listing that lacks what was seen before is taken again, before it
// says that another log is there.
func TestStaleListing(t *testing.T) {
	small(t, 16<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	tail := openTail(t, w.dir, TailOptions{})
	before, err := list(w.dir)
	require.NoError(t, err)
	for first := uint64(1); first < 50; first += 10 {
		w.save(first+9, entriesOf(first, first+9, 1, 2000)...)
	}
	check(t, w.Sync())
	check(t, tail.Poll(t.Context()))
	for _, stale := range [][]name{before, nil} {
		require.ErrorIs(t, tail.take(stale, false), errAgain)
		require.ErrorIs(t, tail.take(stale, true), ErrReplaced)
	}
	check(t, tail.Poll(t.Context()))
}
