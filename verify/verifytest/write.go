package verifytest

import (
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Layout says how a repository is written from a history. The zero value is
// good.
type Layout struct {
	Encrypted bool
	// Cut is how many entries a segment has; 0 is segmentEntries.
	Cut int
	// Merged of the first segments are there as one of level 1 as well, or, with
	// Replaced, instead.
	Merged   int
	Replaced bool
	// Pruned of the first segments are gone, with the backups that they joined.
	Pruned int
	// Extras are everything else that a repository can have: marks, a gap that
	// was filled, a timeline that branched off, a claim, three verdicts.
	Extras bool
}

// segmentEntries makes several segments of what Script writes.
const segmentEntries = 20

// branchIndex is where the timeline of Extras branches off.
const branchIndex = 20

// Write makes a repository in a folder of the test.
func (h *History) Write(t testing.TB, l Layout) *Repo {
	t.Helper()
	r := &Repo{Dir: filepath.Join(t.TempDir(), "repo"), Timeline: h.Timeline}
	if l.Encrypted {
		key, err := age.GenerateX25519Identity()
		must(t, err)
		r.Identities, r.recipients = []age.Identity{key}, []age.Recipient{key.Recipient()}
	}
	sink, err := disk.New(r.Dir)
	must(t, err)
	defer shut(t, sink)
	repo, err := repository.Init(t.Context(), sink, h.Backups[0].Manifest.Started)
	must(t, err)
	h.fill(t, r, repo, l)
	if l.Extras {
		h.extras(t, repo)
		r.verdicts(t, repo)
	}
	return r
}

// WriteBeside adds a history on another timeline to a repository.
func (h *History) WriteBeside(t testing.TB, r *Repo, l Layout) {
	t.Helper()
	beside := *r
	beside.Timeline, beside.Backups = h.Timeline, nil
	h.fill(t, &beside, r.Open(t), l)
}

func (h *History) fill(t testing.TB, r *Repo, repo *repository.Repository, l Layout) {
	t.Helper()
	_, err := repo.EnsureTimeline(t.Context(), repository.Timeline{ID: h.Timeline, Created: h.Backups[0].Manifest.Started, Reason: "first backup", Parent: h.Parent})
	must(t, err)
	if l.Cut == 0 {
		l.Cut = segmentEntries
	}
	for _, b := range h.Backups {
		if b.Manifest.Facts.RaftIndex < uint64(l.Pruned*l.Cut) {
			continue
		}
		r.Backups = append(r.Backups, b.Manifest.ID)
		m := b.Manifest
		r.storeRaw(t, &m, b.Database)
	}
	r.WriteLog(t, h.Entries, l.Cut)
	if l.Merged > 0 {
		r.merge(t, h.Entries, l)
	}
	for _, name := range r.Segments(t, 0)[:max(0, l.Pruned-l.removed())] {
		r.Remove(t, name)
	}
}

// removed is how many of the first segments merging took away.
func (l Layout) removed() int {
	if l.Replaced {
		return l.Merged
	}
	return 0
}

// WriteLog stores entries as segments of n entries, of one chain. A log that was
// there is replaced.
func (r *Repo) WriteLog(t testing.TB, entries []raftlog.Entry, n int) {
	t.Helper()
	for _, level := range []int{0, 1} {
		for _, name := range r.Segments(t, level) {
			r.Remove(t, name)
		}
	}
	var sum raftlog.Sum
	for anchor := true; len(entries) > 0; anchor = false {
		part := entries[:min(n, len(entries))]
		entries = entries[len(part):]
		h, data := r.Encode(t, r.Timeline, sum, anchor, part, 0)
		r.Write(t, h.Name(), data)
		sum = h.After
	}
}

// Encode makes a segment, encrypted where the others are.
func (r *Repo) Encode(t testing.TB, id repository.TimelineID, before raftlog.Sum, anchor bool, entries []raftlog.Entry, level int) (segment.Header, []byte) {
	t.Helper()
	b := segment.Batch{Entries: entries}
	h, data, err := segment.Encode(t.Context(), id, before, anchor, b, segment.Meta{Member: 1, Cut: time.Now()},
		segment.Options{Codec: codec.Options{Recipients: r.recipients}, Tool: tool, Level: level})
	must(t, err)
	return h, data
}

func (r *Repo) merge(t testing.TB, entries []raftlog.Entry, l Layout) {
	t.Helper()
	h, data := r.Encode(t, r.Timeline, raftlog.Sum{}, true, entries[:l.Merged*l.Cut], 1)
	if l.Replaced {
		for _, name := range r.Segments(t, 0)[:l.Merged] {
			r.Remove(t, name)
		}
	}
	r.Write(t, h.Name(), data)
}

func (h *History) extras(t testing.TB, repo *repository.Repository) {
	t.Helper()
	for _, s := range h.Stamps {
		must(t, segment.WriteMark(t.Context(), repo, h.Timeline, s.Mark, &s.Stamp))
	}
	last := h.Entries[len(h.Entries)-1]
	alive := raftlog.Mark{Index: last.Index, Term: last.Term, Time: time.Now(), Member: uint64(h.Backups[0].Manifest.Source.MemberID)}
	must(t, segment.WriteMark(t.Context(), repo, h.Timeline, alive, nil))
	must(t, segment.WriteGap(t.Context(), repo, segment.GapRecord{Timeline: h.Timeline, First: 5, Last: 6, Reason: "purged, and found elsewhere", Created: time.Now()}))

	branch := repository.TimelineID{ClusterID: h.Timeline.ClusterID, N: h.Timeline.N + 1}
	_, err := repo.EnsureTimeline(t.Context(), repository.Timeline{ID: branch, Created: time.Now(), Reason: "a test",
		Parent: &repository.Branch{Timeline: h.Timeline, RaftIndex: branchIndex, Chain: h.chain(branchIndex).String()}})
	must(t, err)
	must(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: h.Timeline, By: branch, At: branchIndex, Reason: "a test", Created: time.Now()}))
	if _, won, err := repo.Claimant("merge", "m1", time.Minute).Try(t.Context(), h.Timeline.String()+"-20260102", ""); err != nil || !won {
		t.Fatal(won, err)
	}
}

// chain is the log's value at an index.
func (h *History) chain(index uint64) raftlog.Sum {
	var sum raftlog.Sum
	for _, e := range h.Entries {
		if e.Index <= index {
			sum = sum.Next(e)
		}
	}
	return sum
}

// verdicts writes three of them: the first bytes of all, then again.
func (r *Repo) verdicts(t testing.TB, repo *repository.Repository) {
	t.Helper()
	for range 3 {
		report, seen, err := verify.Repository(t.Context(), repo, verify.Request{
			Backup: verify.All, Rung: report.Checksum, Identities: r.Identities, ScratchDir: t.TempDir(), Tool: tool})
		must(t, err)
		if len(report.Findings()) > 0 {
			t.Fatalf("a healthy repository: %v", report.Findings())
		}
		_, err = verdict.Write(t.Context(), repo, verdict.FromReport(report, seen...), nil)
		must(t, err)
	}
}
