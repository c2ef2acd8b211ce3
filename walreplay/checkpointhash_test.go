package walreplay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// hash is the HashKV of the state after an entry, made in one go.
func (w *world) hash(index uint64) segment.CheckpointHash {
	w.t.Helper()
	image, _ := w.at(index)
	h, err := image.HashKV(w.t.Context(), 0)
	require.NoError(w.t, err)
	return segment.CheckpointHash{Hash: h.Hash, HashRevision: h.Revision, CompactedRevision: h.CompactedRevision}
}

// stamp stores an alive mark after an entry, with a checkpoint hash.
func (w *world) stamp(index, member uint64, s segment.CheckpointHash) {
	w.t.Helper()
	m := raftlog.Mark{Index: index, Term: 2, Time: timeOf(index), Member: member, Revision: w.rev[index]}
	require.NoError(w.t, segment.WriteMark(w.t.Context(), w.repo, w.id, m, &s))
}

// stamped is a world with a full snapshot at entry 4 and the log after it:
// checkpoint hashes stand at the entries that are returned, the second after a compaction.
func stamped(t *testing.T) (w *world, early, compacted, late, end uint64) {
	t.Helper()
	w = newWorld(t)
	for range 3 {
		w.put("a", "1")
	}
	base := w.put("b", "1")
	w.backup(base)
	early = w.put("a", "2")
	w.delete("b")
	w.put("c", "1")
	compacted = w.compact(w.rev[early] + 1)
	w.put("a", "3")
	late = w.put("d", "1")
	w.put("a", "4")
	end = w.delete("c")
	w.archive(1, end, true)
	for _, index := range []uint64{early, compacted, late, end} {
		w.stamp(index, 7, w.hash(index))
	}
	return w, early, compacted, late, end
}

func (w *world) compare(index uint64, check HashCheck, version string) (*Rebuilt, error) {
	w.t.Helper()
	h, o := w.history(), w.options()
	o.CheckpointHashes, o.SourceVersion = check, version
	p, err := h.Resolve(w.t.Context(), Target{Kind: AtIndex, Index: index}, "", o)
	require.NoError(w.t, err)
	r, err := h.Rebuild(w.t.Context(), p, o)
	if err == nil {
		w.t.Cleanup(func() { r.Close() })
	} else if left, _ := filepath.Glob(filepath.Join(o.ScratchDir, ".*")); len(left) > 0 {
		w.t.Errorf("left %v", left)
	}
	return r, err
}

// Promise 7 of the design, from the cheapest side: what was rebuilt is held
// against the hashes that live members served. Those of the state itself cost
// nothing; the others take a pass each, where no later compaction lies between.
func TestStampsAreCompared(t *testing.T) {
	w, early, _, late, end := stamped(t)
	for _, c := range []struct {
		name    string
		index   uint64
		check   HashCheck
		version string
		want    CheckpointHashes
	}{
		{"none", end, NoCheckpointHashes, "", CheckpointHashes{}},
		{"at the end", end, CheckpointHashesAtEnd, "", CheckpointHashes{Equal: 1, Passed: 3}},
		{"between stamps", late + 1, CheckpointHashesAtEnd, "", CheckpointHashes{Passed: 3}},
		{"at an older one", late, CheckpointHashesAtEnd, "", CheckpointHashes{Equal: 1, Passed: 2}},
		{"before the compaction", early, EveryCheckpointHash, "", CheckpointHashes{Equal: 1}},
		{"every one", end, EveryCheckpointHash, "", CheckpointHashes{Equal: 3, Passed: 1}},
		{"an etcd with another hash", end, EveryCheckpointHash, "3.5.15", CheckpointHashes{Passed: 4}},
		{"and before any compaction", early, EveryCheckpointHash, "3.5.15", CheckpointHashes{Equal: 1}},
		{"an etcd with this hash", end, EveryCheckpointHash, "3.5.16", CheckpointHashes{Equal: 3, Passed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := w.compare(c.index, c.check, c.version)
			require.NoError(t, err)
			if r.CheckpointHashes != c.want {
				t.Errorf("%+v, want %+v", r.CheckpointHashes, c.want)
			}
		})
	}
}

// A checkpoint hash that differs says that the archive, or the replay, is not what the
// cluster held: nothing is rebuilt, and member, time and index are named.
func TestWrongStamp(t *testing.T) {
	for _, at := range []string{"the end", "an older revision"} {
		w, _, compacted, _, end := stamped(t)
		index, check := end, CheckpointHashesAtEnd
		if at != "the end" {
			index, check = compacted, EveryCheckpointHash
		}
		wrong := w.hash(index)
		wrong.Hash ^= 1
		w.stamp(index, 9, wrong)
		_, err := w.compare(end, check, "")
		var (
			damaged *snapshot.DamagedError
			stamp   *CheckpointHashError
		)
		if !errors.As(err, &damaged) || !errors.As(err, &stamp) {
			t.Fatalf("%s: %v", at, err)
		}
		if stamp.Member != 9 || stamp.Index != index || !stamp.Time.Equal(timeOf(index)) || stamp.Served != wrong || stamp.Got != wrong.Hash^1 {
			t.Errorf("%s: %+v", at, stamp)
		}
		for _, part := range []string{"member 0000000000000009", instant(timeOf(index)), "raft index"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not name %q", at, err, part)
			}
		}
		if check == EveryCheckpointHash {
			_, err = w.compare(end, CheckpointHashesAtEnd, "")
			require.NoError(t, err, "it is not of the end")
		}
		_, err = w.compare(end, NoCheckpointHashes, "")
		require.NoError(t, err, "none are compared")
	}
}

// Checkpoint hashes that nobody could have taken are no comparison, and no crash.
func TestImpossibleStamps(t *testing.T) {
	w, _, _, _, end := stamped(t)
	for i, s := range []segment.CheckpointHash{
		{HashRevision: 1 << 40, CompactedRevision: w.hash(end).CompactedRevision},
		{HashRevision: 0, CompactedRevision: w.hash(end).CompactedRevision},
		{HashRevision: -5, CompactedRevision: -7},
		{HashRevision: 1, CompactedRevision: w.hash(end).CompactedRevision},
	} {
		w.stamp(end, uint64(20+i), s)
	}
	r, err := w.compare(end, EveryCheckpointHash, "")
	require.NoError(t, err)
	if want := (CheckpointHashes{Equal: 3, Passed: 5}); r.CheckpointHashes != want {
		t.Errorf("%+v, want %+v", r.CheckpointHashes, want)
	}
}

// A damaged mark does not keep a restore from its point; a proof names it.
func TestDamagedStamp(t *testing.T) {
	w, _, _, _, end := stamped(t)
	marks, err := w.repo.Marks(t.Context(), w.id)
	if err != nil || len(marks) != 4 {
		t.Fatalf("%d marks, %v", len(marks), err)
	}
	path := filepath.Join(strings.TrimPrefix(w.repo.Sink().String(), "file://"), filepath.FromSlash(marks[2].String()))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, data, 0o600)))
	if r, err := w.compare(end, CheckpointHashesAtEnd, ""); err != nil || r.CheckpointHashes.Equal != 1 {
		t.Errorf("at the end: %v", err)
	}
	var damaged *snapshot.DamagedError
	if _, err := w.compare(end, EveryCheckpointHash, ""); !errors.As(err, &damaged) || !strings.Contains(err.Error(), marks[2].String()) {
		t.Errorf("every one: %v", err)
	}
}

// The list is of a range of indexes, and has marks with a checkpoint hash only.
func TestStampsOfARange(t *testing.T) {
	w, early, compacted, late, end := stamped(t)
	require.NoError(t, segment.WriteMark(t.Context(), w.repo, w.id, raftlog.Mark{Index: late, Term: 2, Time: timeOf(late + 1), Member: 7, Revision: 1}, nil))
	for _, c := range []struct {
		first, last uint64
		want        []uint64
	}{
		{0, 1 << 40, []uint64{early, compacted, late, end}},
		{early + 1, late, []uint64{compacted, late}},
		{late + 1, late, nil},
	} {
		var got []uint64
		for a, err := range w.history().CheckpointHashes(t.Context(), c.first, c.last) {
			require.NoError(t, err)
			if got = append(got, a.Index); *a.CheckpointHash != w.hash(a.Index) {
				t.Errorf("at %d: %+v", a.Index, a.CheckpointHash)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("from %d to %d: %v, want %v", c.first, c.last, got, c.want)
		}
	}
	for a, err := range (&History{log: &member{}}).CheckpointHashes(t.Context(), 0, 1<<40) {
		t.Errorf("a data directory has the stamp %+v, %v", a, err)
	}
}
