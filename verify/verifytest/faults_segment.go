package verifytest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// middle is a segment that no other one covers, between two such.
func middle(t testing.TB, r *Repo) string { return r.Segments(t, 0)[3] }

// covered is one whose entries a merged one has as well.
func covered(t testing.TB, r *Repo) string { return r.Segments(t, 0)[0] }

func merged(t testing.TB, r *Repo) string { return r.Segments(t, 1)[0] }

// segmentFaults are in the log, and every reader that joins its segments by their
// chain would stumble over them.
func segmentFaults() []Fault {
	return []Fault{
		checksum("segment: a bit flipped in the header", flip(middle, 200), report.KindSegment),
		checksum("segment: a bit flipped in the header's frame", flip(middle, 2), report.KindSegment),
		checksum("segment: a bit flipped in what fills the header up", flip(middle, 2040), report.KindSegment),
		only(Plain, checksum("segment: a bit flipped in the body", flip(middle, 2500), report.KindSegment)),
		only(Encrypted, checksum("segment: a bit flipped in the age header", flip(middle, 2110), report.KindSegment)),
		only(Encrypted, checksum("segment: a bit flipped in the age body", flip(middle, 2500), report.KindSegment)),
		checksum("segment: a bit flipped in the seek table or the last chunk", flip(middle, -2), report.KindSegment),
		checksum("segment: a bit flipped where a merged one has its entries too", flip(covered, 2500), report.KindSegment),
		checksum("merged segment: a bit flipped", flip(merged, 2500), report.KindSegment),
		checksum("segment: cut", resize(middle, -100), report.KindSize),
		checksum("segment: bytes appended", resize(middle, 100), report.KindSize),
		checksum("segment: empty", empty(middle), report.KindSegment, report.KindSize),
		checksum("segment: gone from the middle", remove(middle), report.KindGap),
		checksum("segment: gone from the middle, and no verdict had seen it", func(t testing.TB, r *Repo) string {
			r.ForgetVerdicts(t)
			return remove(middle)(t, r)
		}, report.KindGap),
		checksum("segments: gone between the first backup and the rest of the log", goneBehindFirst, report.KindGap),
		checksum("segment: a copy under another name", func(t testing.TB, r *Repo) string {
			n, err := repository.ParseSegmentName(middle(t, r))
			must(t, err)
			n.First += 3
			r.Write(t, n.String(), r.Read(t, middle(t, r)))
			return n.String()
		}, report.KindSegment),
		checksum("segments: two swapped", func(t testing.TB, r *Repo) string {
			swap(t, r, r.Segments(t, 0)[2], r.Segments(t, 0)[3])
			return "two"
		}, report.KindSegment),
		checksum("segment: of another cluster", foreign(func(id *repository.TimelineID) { id.ClusterID++ }), report.KindSegment),
		checksum("segment: of another timeline", foreign(func(id *repository.TimelineID) { id.N++ }), report.KindSegment),
		checksum("segments: two with other entries at one index", forked, report.KindFork),
		checksum("segment: replaced by one with an altered entry, all of its own sums fixed up", replaced, report.KindFork),
		checksum("segment: replaced by one that begins a chain of its own", anchored, report.KindFork, report.KindGap),
		checksum("segment: an entry's term is another one than the backup's at its index", otherTerm, report.KindFork, report.KindSegment),
	}
}

// one is a segment of level 0: its entries, and the chain's value before them.
func one(t testing.TB, r *Repo, name string) (segment.Header, []raftlog.Entry) {
	t.Helper()
	h, b, err := segment.Read(t.Context(), r.Open(t).Sink(), name, r.Identities...)
	must(t, err)
	return h, b.Entries
}

// put writes entries in the place of a segment.
func put(t testing.TB, r *Repo, name string, id repository.TimelineID, h segment.Header, entries []raftlog.Entry) string {
	t.Helper()
	_, data := r.Encode(t, id, h.Before, h.Anchor, entries, 0)
	r.Write(t, name, data)
	return name
}

func foreign(change func(*repository.TimelineID)) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		name, id := middle(t, r), r.Timeline
		h, entries := one(t, r, name)
		change(&id)
		return put(t, r, name, id, h, entries)
	}
}

// goneBehindFirst takes away what joins the first backup to the log, and the
// backups that stand beside it.
func goneBehindFirst(t testing.TB, r *Repo) string {
	r.ForgetVerdicts(t)
	r.RemoveAll(t, r.Timeline.String()+"/l1/")
	first := r.Manifest(t, 0).Facts.RaftIndex
	n := 0
	for _, name := range r.Segments(t, 0) {
		s, err := repository.ParseSegmentName(name)
		must(t, err)
		if s.First <= first+1 {
			r.Remove(t, name)
			n++
		}
	}
	return fmt.Sprintf("the first %d segments", n)
}

// alteredIn is a copy of a segment's entries in which one has other data.
func alteredIn(t testing.TB, entries []raftlog.Entry) []raftlog.Entry {
	t.Helper()
	all := slices.Clone(entries)
	for i, e := range all {
		if at := bytes.Index(e.Data, []byte("round ")); at > 0 {
			all[i].Data = bytes.Clone(e.Data)
			all[i].Data[at]++
			return all
		}
	}
	t.Fatal("no entry to alter")
	return nil
}

// forked adds a segment that begins later, and holds something else.
func forked(t testing.TB, r *Repo) string {
	h, entries := one(t, r, middle(t, r))
	h.Before = h.Before.Next(entries[0])
	n := repository.SegmentName{Timeline: r.Timeline, First: entries[1].Index}
	return put(t, r, n.String(), r.Timeline, h, alteredIn(t, entries[1:]))
}

func replaced(t testing.TB, r *Repo) string {
	name := middle(t, r)
	h, entries := one(t, r, name)
	r.ForgetVerdicts(t)
	return put(t, r, name, r.Timeline, h, alteredIn(t, entries))
}

func anchored(t testing.TB, r *Repo) string {
	name := middle(t, r)
	h, entries := one(t, r, name)
	h.Before, h.Anchor = raftlog.Sum{}, true
	r.ForgetVerdicts(t)
	return put(t, r, name, r.Timeline, h, alteredIn(t, entries))
}

// otherTerm raises the term from before the last backup on, in a chain of one
// piece, and lets no mark say otherwise.
func otherTerm(t testing.TB, r *Repo) string {
	entries := r.Log(t)
	at := r.Manifest(t, last).Facts.RaftIndex - 2
	for i := range entries {
		if entries[i].Index >= at {
			entries[i].Term++
		}
	}
	r.ForgetVerdicts(t)
	r.RemoveAll(t, r.Timeline.String()+"/marks/")
	r.WriteLog(t, entries, segmentEntries)
	return fmt.Sprintf("from index %d on", at)
}
