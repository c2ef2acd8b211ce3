package walreplay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// Range is a part of a timeline: one in which every point can be restored, or,
// with Gap, one in which none can. Its JSON form is stable.
type Range struct {
	Timeline repository.TimelineID `json:"timeline"`
	// FirstBackup is the full snapshot at FirstIndex, empty for a gap.
	FirstBackup string `json:"first_backup,omitempty"`
	// FirstIndex and LastIndex are the raft indexes at both ends: for a gap, of
	// the first and the last point that cannot be restored.
	FirstIndex uint64 `json:"first_index"`
	LastIndex  uint64 `json:"last_index"`
	// LastRevision is at least this, unless LastRevisionExact. Both revisions
	// are 0 where they are not known, as in a gap.
	FirstRevision     int64 `json:"first_revision,omitempty"`
	LastRevision      int64 `json:"last_revision,omitempty"`
	LastRevisionExact bool  `json:"last_revision_exact"`
	// From is when the first snapshot was begun, To the last observation of the
	// cluster in the range; zero where it is not known.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	Gap  bool      `json:"gap"`
	// Reason says why there is a gap.
	Reason string `json:"reason,omitempty"`
	// Damage says that `requorum verify` calls the gap damage: nobody recorded that its
	// entries were lost, or no full snapshot was taken after it.
	Damage bool `json:"damage,omitempty"`
}

// Inventory is what a repository holds: the timelines and full snapshots of the catalogue,
// and the archived logs. Each log is opened once, when it is needed; Ranges lists it
// again. The unusable objects are named by Repo.Unusable. It is used by one goroutine.
type Inventory struct {
	*snapshot.Catalog // nil until it was read
	Repo              *repository.Repository

	identities []age.Identity
	logs       map[repository.TimelineID]*segment.Log
}

// NewInventory reads nothing yet but has a catalogue that the caller read, if any.
// identities are for encrypted segments.
func NewInventory(repo *repository.Repository, c *snapshot.Catalog, identities ...age.Identity) *Inventory {
	return &Inventory{c, repo, identities, map[repository.TimelineID]*segment.Log{}}
}

// ReadInventory reads a repository's catalogue.
func ReadInventory(ctx context.Context, repo *repository.Repository, identities ...age.Identity) (*Inventory, error) {
	a := NewInventory(repo, nil, identities...)
	return a, a.Refresh(ctx)
}

// Refresh reads the catalogue again. With an error what was known before stays.
func (a *Inventory) Refresh(ctx context.Context) error {
	c, err := snapshot.ReadCatalog(ctx, a.Repo)
	if err == nil {
		a.Catalog = c
	}
	return err
}

// Ranges are the parts of every timeline, in their order: what can be restored, and the
// gaps between and after it. It lists the log of each and reads headers; a range can still
// turn out to be damaged inside when it is read.
func (a *Inventory) Ranges(ctx context.Context) ([]Range, error) {
	all := []Range{}
	there := map[repository.TimelineID]*segment.Log{}
	for _, t := range a.Timelines {
		known := a.logs[t.ID]
		log, err := a.open(ctx, t.ID)
		if err == nil && known != nil {
			err = log.Refresh(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("open the archived log of timeline %s in %s: %w", t.ID, a.Repo, err)
		}
		for _, d := range log.Damaged() {
			_ = a.Repo.PassOver(d.Name, d.Err)
		}
		there[t.ID] = log
		all = append(all, historyOf(a.Repo, a.Catalog, log).ranges()...)
	}
	a.logs = there
	return all, nil
}

// end returns the raft index that a timeline can be restored to: of its newest full
// snapshot, or of the last entry of the log that continues from one; 0 if it has neither.
// What lies after a gap without a full snapshot hides nothing that was deleted before it.
// Without any full snapshot it is the end of the log up to its first gap.
func (a *Inventory) end(ctx context.Context, t repository.TimelineID) (index uint64, err error) {
	var fulls []uint64
	for _, m := range a.Manifests {
		if m.Timeline == t && a.CheckEncrypted(m) == nil { // others could hide what was deleted
			fulls = append(fulls, m.Facts.RaftIndex)
			index = max(index, m.Facts.RaftIndex)
		}
	}
	log, err := a.open(ctx, t)
	if err != nil {
		return 0, err
	}
	for i, s := range log.Coverage() {
		continues := func(full uint64) bool { return s.FirstIndex <= full+1 && full <= s.LastIndex }
		if len(fulls) == 0 && i == 0 || slices.ContainsFunc(fulls, continues) {
			index = max(index, s.LastIndex)
		}
	}
	return index, nil
}

// Since is how much log there is behind an index of a timeline, as Ranges saw it
// last: in bytes as stored, and in entries.
func (a *Inventory) Since(t repository.TimelineID, index uint64) (bytes int64, entries uint64) {
	log := a.logs[t]
	if log == nil {
		return 0, 0
	}
	last := index
	all := log.Headers()
	for i, h := range all {
		// What a merged segment repeats is not counted again: it comes behind the first
		// of those that it repeats.
		repeated := i+1 < len(all) && all[i+1].FirstIndex == h.FirstIndex
		if h.LastIndex > last && !repeated {
			bytes += h.Size()
			last = h.LastIndex
		}
	}
	return bytes, last - index
}

// Log is the archived log of a timeline as Ranges saw it last; nil where it saw
// none.
func (a *Inventory) Log(t repository.TimelineID) *segment.Log { return a.logs[t] }

func (a *Inventory) open(ctx context.Context, t repository.TimelineID) (*segment.Log, error) {
	encrypted := a.EncryptedSince[t]
	if log := a.logs[t]; log != nil {
		return log, log.RefusePlain(ctx, encrypted)
	}
	log, err := segment.OpenNames(ctx, a.Repo, t, encrypted, a.identities...)
	if err == nil {
		a.logs[t] = log
	}
	return log, err
}

// History is the history of one timeline: its full snapshots, and its archived log. It lists the log, and reads the headers that segment.OpenNames does.
// Where an older full snapshot is encrypted, log in the clear is damage: see TakePlain.
func (a *Inventory) History(ctx context.Context, t repository.TimelineID) (*History, error) {
	log, err := a.open(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("open the archived log of timeline %s in %s: %w", t, a.Repo, err)
	}
	return historyOf(a.Repo, a.Catalog, log, a.identities...), nil
}

// Size is what the log segments took, in bytes, when Ranges looked last.
func (a *Inventory) Size() int64 {
	var sum int64
	for _, log := range a.logs {
		for _, h := range log.Headers() {
			sum += h.Size()
		}
	}
	return sum
}

func (h *History) ranges() []Range {
	var all []Range
	for _, b := range h.bases {
		reach := h.Reach(b)
		if n := len(all); n > 0 && b.Index() <= all[n-1].LastIndex {
			if last := &all[n-1]; reach <= last.LastIndex {
				last.know(b, reach)
				continue
			} else if b.Index() == last.LastIndex {
				h.extend(last, b, reach)
				continue
			}
		}
		r := Range{Timeline: h.Timeline, FirstBackup: b.ID, FirstIndex: b.Index(), LastIndex: b.Index(), FirstRevision: b.Facts.Revision, From: b.Taken}
		h.extend(&r, b, reach)
		all = append(all, r)
	}
	return h.withGaps(all)
}

// Unbroken reports whether the log leads from b to its end: nothing is missing
// between, as far as headers show.
func (h *History) Unbroken(b *Base) bool {
	spans := h.log.Coverage()
	return len(spans) == 0 || h.Reach(b) >= spans[len(spans)-1].LastIndex
}

// know takes over what an image within a range says of its end.
func (r *Range) know(b *Base, reach uint64) {
	r.LastRevision = max(r.LastRevision, b.Facts.Revision)
	if b.Index() == reach && reach == r.LastIndex {
		r.LastRevisionExact = true
	}
	if b.Taken.After(r.To) {
		r.To = b.Taken
	}
}

// extend lets a range go on as far as the log after b does.
func (h *History) extend(r *Range, b *Base, reach uint64) {
	r.LastIndex, r.LastRevisionExact = reach, false
	r.know(b, reach)
	if s := h.after(b); s != nil {
		r.LastRevision = max(r.LastRevision, s.LastRevision)
		if s.LastMark.After(r.To) {
			r.To = s.LastMark
		}
	}
}

// withGaps puts the gaps between the ranges, and after the last one where the
// log has more. Points before the first full snapshot are not a gap, nor are those that
// the log does not reach back to: it was not archived yet, or retention deleted it.
func (h *History) withGaps(ranges []Range) []Range {
	spans := h.log.Coverage()
	all := []Range{}
	gap := func(first, last uint64, open bool) {
		if first <= last {
			all = append(all, Range{Timeline: h.Timeline, FirstIndex: first, LastIndex: last, Gap: true, Reason: h.why(first, last), Damage: len(h.bases) > 0 && (open || h.unexplained(first, last))})
		}
	}
	next := uint64(1)
	if len(spans) > 0 {
		next = spans[0].FirstIndex
	}
	for i, r := range ranges {
		if i > 0 && len(spans) > 0 && (spans[0].FirstIndex <= next || h.log.damageAt(next, r.FirstIndex-1) != nil) {
			gap(next, r.FirstIndex-1, false)
		}
		all = append(all, r)
		next = r.LastIndex + 1
	}
	if len(spans) > 0 {
		gap(next, spans[len(spans)-1].LastIndex, true)
	}
	return all
}

// unexplained reports whether entries between two indexes are missing that nobody
// recorded as lost, or the log on both sides of one is not of one chain.
func (h *History) unexplained(first, last uint64) bool {
	a, ok := h.log.(*archived)
	return ok && slices.ContainsFunc(a.Gaps(), func(g segment.Gap) bool {
		return g.After < last && g.Next > first-1 && g.Unexplained(a.Headers())
	})
}

// why says why nothing can be restored between two indexes.
func (h *History) why(first, last uint64) string {
	if len(h.bases) == 0 {
		return "a log can only be restored with a full snapshot that it goes on from, and there is none yet"
	}
	missing := first
	for _, s := range h.log.Coverage() {
		if s.FirstIndex <= missing && missing <= s.LastIndex {
			missing = s.LastIndex + 1
		}
	}
	if missing > last {
		return "the log has these entries, but no full snapshot before them joins it"
	}
	reason := "entries are missing in the log"
	if a, ok := h.log.(*archived); ok {
		if err := a.damageAt(first, last); err != nil {
			return err.Error()
		}
		for _, g := range a.Gaps() {
			if g.Reason != "" && g.After+1 <= last && g.Next-1 >= first {
				reason += ": " + g.Reason
				break
			}
		}
	}
	for _, s := range h.log.Coverage() {
		if s.FirstIndex > missing && s.FirstIndex <= last {
			return fmt.Sprintf("%s; the log goes on at raft index %d, but points need a full snapshot first", reason, s.FirstIndex)
		}
	}
	return reason
}

// highestArchived is the highest revision that a timeline's archived log can
// have reached, as far as its headers show; 0 where they show none. A segment
// need not know its revision, and the one that it knows may be older than its
// last entry: each entry moves it by one at most.
func highestArchived(log *segment.Log) int64 {
	var last uint64
	var known segment.Header // the first that knows the highest revision
	for _, h := range log.Headers() {
		last = max(last, h.LastIndex)
		if h.Revision > known.Revision || h.Revision == known.Revision && h.FirstIndex < known.FirstIndex {
			known = h
		}
	}
	if known.Revision == 0 {
		return 0
	}
	return known.Revision + int64(last-known.FirstIndex) + 1
}

// HighestRevision is the highest revision that anything in a repository can have
// reached: its full snapshots, and the archived logs. It is of all timelines, or of some.
func (a *Inventory) HighestRevision(ctx context.Context, only ...repository.TimelineID) (highest int64, err error) {
	isMeant := func(t repository.TimelineID) bool { return len(only) == 0 || slices.Contains(only, t) }
	for _, m := range a.Manifests {
		if isMeant(m.Timeline) {
			highest = max(highest, m.Facts.Revision)
		}
	}
	for _, t := range a.Timelines {
		if !isMeant(t.ID) {
			continue
		}
		log, err := a.open(ctx, t.ID)
		if err != nil {
			return 0, fmt.Errorf("find the highest revision of the archived log of timeline %s in %s: %w", t.ID, a.Repo, err)
		}
		highest = max(highest, highestArchived(log))
	}
	return highest, nil
}
