package walfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// overwrittenLog writes a log of many segments with overwrites inside of
// segments and across them, and gives what it amounts to.
func overwrittenLog(t testing.TB, dir string) (want []raftlog.Entry) {
	small(t, 8<<10)
	w := newWriter(t, dir, testIdentity)
	add := func(commit uint64, entries ...raftlog.Entry) {
		w.save(commit, entries...)
		for _, e := range entries {
			want = append(want[:e.Index-1], e)
		}
	}
	for i := uint64(1); i <= 400; i += 10 {
		add(i, entriesOf(i, i+9, 1+i/100, 100)...)
	}
	add(390, entriesOf(380, 385, 6, 100)...) // shorter than before
	add(385, entriesOf(386, 470, 6, 100)...) // one Save over more than a segment
	add(385, entriesOf(390, 392, 7, 100)...) // back over a segment's beginning
	add(392, entriesOf(393, 500, 8, 100)...)
	add(495, entriesOf(501, 501, 8, 0)...)
	w.close()
	return want
}

// TestOverwrites: what a later record replaced is never given, wherever the two
// stand.
func TestOverwrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	want := overwrittenLog(t, dir)
	if n := len(segments(t, dir)); n < 8 {
		t.Fatalf("%d segments: the test wants more", n)
	}
	for _, first := range []uint64{0, 1, 2, 95, 379, 380, 389, 391, 393, 470, 501} {
		got, err := entriesIn(t, dir, first)
		check(t, err)
		wantEntries(t, got, want[max(1, first)-1:])
	}
	if got, err := entriesIn(t, dir, 502); err != nil || len(got) > 0 {
		t.Fatalf("behind the end: %d entries, %v", len(got), err)
	}
	l, err := Open(dir)
	check(t, err)
	s, err := l.Summary(t.Context())
	check(t, err)
	if s.FirstIndex != 1 || s.LastIndex != 501 || s.LastTerm != 8 || s.Commit != 495 || s.Term != 8 || s.Torn != nil || len(s.Gaps) > 0 || s.Identity != testIdentity {
		t.Fatalf("summary %+v", s)
	}
}

// TestNothingChanges: reading leaves every byte and name as it was, and takes no
// lock: the writer, which holds them all, is still there.
func TestNothingChanges(t *testing.T) {
	small(t, 8<<10)
	dir := filepath.Join(t.TempDir(), "wal")
	w := newWriter(t, dir, testIdentity)
	w.save(90, entriesOf(1, 100, 1, 100)...)
	// A torn tail, which etcd's Repair would cut off.
	check(t, w.Sync())
	all := segments(t, dir)
	ends := frames(t, all[len(all)-1])
	patch(t, all[len(all)-1], ends[len(ends)-1], []byte{200, 0, 0, 0, 0, 0, 0, 0, 8, 2})
	before := fingerprint(t, dir)
	_, err := entriesIn(t, dir, 0)
	check(t, err)
	tail, err := OpenTail(dir, TailOptions{})
	check(t, err)
	defer tail.Close()
	check(t, tail.Poll(t.Context()))
	if after := fingerprint(t, dir); after != before {
		t.Fatalf("before:\n%s\nafter:\n%s", before, after)
	}
}

func fingerprint(t *testing.T, dir string) string {
	var out string
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || filepath.Ext(path) == ".tmp" {
			return nil // etcd's, for the next segment
		}
		sum := sha256.Sum256(b)
		info, _ := d.Info()
		out += path + " " + info.ModTime().String() + " " + string(sum[:]) + "\n"
		return err
	}))
	return out
}

// TestForeignFiles: what etcd is still preparing or has set aside, and what
// others left there, is no segment.
func TestForeignFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	want := overwrittenLog(t, dir)
	for _, name := range []string{"0.tmp", "1.tmp", "0000000000000000-0000000000000000.wal.broken", "lost+found", "ffffffffffffffff-0000000000000001.WAL", "zzzzzzzzzzzzzzzz-0000000000000001.wal", "00000000000000FF-0000000000000001.wal"} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("something else"), 0o600))
	}
	check(t, os.Mkdir(filepath.Join(dir, "00000000000000ff-0000000000000001.wal"), 0o700))
	got, err := entriesIn(t, dir, 0)
	check(t, err)
	wantEntries(t, got, want)
}

func TestNoLog(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	require.ErrorIs(t, err, ErrNoLog, "Open of an empty directory")
	_, err = OpenTail(dir, TailOptions{})
	require.ErrorIs(t, err, ErrNoLog, "OpenTail of an empty directory")
	_, err = Open(filepath.Join(dir, "not there"))
	require.ErrorIs(t, err, fs.ErrNotExist, "Open of no directory")
}

// TestMissingSegment: a hole between the files is never jumped over, and what is
// behind it can still be read.
func TestMissingSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	want := overwrittenLog(t, dir)
	all := segments(t, dir)
	check(t, os.Remove(all[2]))
	n, _ := parseName(filepath.Base(all[3]))
	_, err := entriesIn(t, dir, 1)
	wantCorrupt(t, err, all[3], -1)
	got, err := entriesIn(t, dir, n.index)
	check(t, err)
	wantEntries(t, got, want[n.index-1:])
	l, err := Open(dir)
	check(t, err)
	s, err := l.Summary(t.Context())
	wantCorrupt(t, err, all[3], -1)
	if s.FirstIndex != n.index || s.LastIndex != 501 {
		t.Fatalf("summary after the hole: %+v", s)
	}
}

// TestTwoOfOneNumber: two files that claim the same place are damage.
func TestTwoOfOneNumber(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	overwrittenLog(t, dir)
	check(t, os.WriteFile(filepath.Join(dir, "0000000000000001-00000000000fffff.wal"), nil, 0o600))
	_, err := Open(dir)
	wantCorrupt(t, err, "0000000000000001-00000000000fffff.wal", 0)
}

// TestChainAcrossSegments: a segment that ends early at a record's border is
// found by the CRC that the next one opens with.
func TestChainAcrossSegments(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	overwrittenLog(t, dir)
	all := segments(t, dir)
	ends := frames(t, all[1])
	cut := ends[len(ends)-3]
	check(t, os.Truncate(all[1], cut))
	_, err := entriesIn(t, dir, 1)
	wantCorrupt(t, err, all[1], cut)
	require.ErrorIs(t, err, errBroken)
}

// TestOtherIdentity: segments of two members are not one log, even where their
// names and CRCs go on.
func TestOtherIdentity(t *testing.T) {
	dir := t.TempDir()
	b := newSegment(0).crc().metadata(testIdentity).entry(1, 1, "one")
	write(t, dir, 0, 0, b.bytes)
	next := newSegment(b.sum).crc().metadata(Identity{ClusterID: 0xc1, MemberID: 0xa2}).entry(2, 1, "two")
	write(t, dir, 1, 2, next.bytes)
	_, err := entriesIn(t, dir, 0)
	wantCorrupt(t, err, "0000000000000000-0000000000000000.wal", -1)

	// A live log that goes on as another member's was replaced.
	check(t, os.Remove(filepath.Join(dir, "0000000000000001-0000000000000002.wal")))
	tail, err := OpenTail(dir, TailOptions{})
	check(t, err)
	defer tail.Close()
	check(t, tail.Poll(t.Context()))
	write(t, dir, 1, 2, next.bytes)
	require.ErrorIs(t, tail.Poll(t.Context()), ErrReplaced)
}

func TestCancel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	overwrittenLog(t, dir)
	l, err := Open(dir)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Summary(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Summary(t.Context())
	require.NoError(t, err, "a cancelled pass stays")
}
