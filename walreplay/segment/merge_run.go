package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// bodyReaders is how many segments are read at once; a merged segment's worth
// of them is in memory anyway.
const bodyReaders = 8

// mergeLevel makes the segments of one level that are due.
func (m *Merger) mergeLevel(ctx context.Context, all *listing, rule rule, r *MergeReport) error {
	items, err := m.read(ctx, all.sources(rule), r)
	if err != nil {
		return err
	}
	runs := m.plan(all, rule, items)
	for len(runs) > 0 {
		run := runs[0]
		runs = runs[1:]
		unread, err := m.mergeRun(ctx, rule.level, run, r)
		switch {
		case unread >= 0: // what is around it is merged without it
			runs = append(parts(run, unread, rule.least), runs...)
		case err != nil && unusable(err):
			r.Damaged = append(r.Damaged, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// parts are what is left of a run without one of its segments.
func parts(run []*item, without, least int) [][]*item {
	var left [][]*item
	for _, part := range [][]*item{run[:without], run[without+1:]} {
		if len(part) >= least {
			left = append(left, part)
		}
	}
	return left
}

// mergeRun stores one merged segment and reads it back. What it was made of
// stays. unread is the position of a segment that cannot be used, -1 where that
// isn't it.
func (m *Merger) mergeRun(ctx context.Context, level int, run []*item, r *MergeReport) (unread int, err error) {
	if slices.ContainsFunc(run, func(i *item) bool { return i.Object.Encrypted() }) && len(m.Codec.Recipients) == 0 {
		return -1, fmt.Errorf("log segments from index %d on are encrypted; to merge them, give the recipients as well: nothing encrypted is stored in plain text again", run[0].FirstIndex)
	}
	batch, meta, unread, err := m.readRun(ctx, run, r)
	if unread >= 0 || err != nil {
		return unread, err
	}
	o := Options{Codec: m.Codec, Tool: m.Tool, Level: level}
	h, object, err := Encode(ctx, m.Timeline, run[0].Before, run[0].ChainStart, batch, meta, o)
	if err != nil {
		return -1, err
	}
	// A host that was killed, or is at it as well, has stored the same.
	if err := Put(ctx, m.Repo, h, object); err != nil && !errors.Is(err, sinks.ErrExists) {
		return -1, fmt.Errorf("store merged segment %s: %w", h.Name(), err)
	}
	if err := m.readBack(ctx, h); err != nil {
		return -1, err
	}
	m.Logger.Info("log segments merged", "object", h.Name(), "sources", len(run), "entries", h.Entries, "bytes", len(object))
	r.Merged = append(r.Merged, h)
	r.Sources += len(run)
	return -1, nil
}

// readRun reads the run's entries and marks, each segment with all its checks.
func (m *Merger) readRun(ctx context.Context, run []*item, r *MergeReport) (batch Batch, meta Meta, unread int, err error) {
	headers := make([]Header, len(run))
	batches := make([]Batch, len(run))
	failed := make([]error, len(run))
	var group errgroup.Group
	group.SetLimit(bodyReaders)
	for i, source := range run {
		group.Go(func() error {
			headers[i], batches[i], failed[i] = Read(ctx, m.Repo, source.listed.Name, m.Identities...)
			return nil
		})
	}
	_ = group.Wait() // the errors are in failed
	for i, h := range headers {
		switch err := failed[i]; {
		case err == nil && h.Before == run[i].Before && h.After == run[i].After && h.Object.StoredSHA256 == run[i].Object.StoredSHA256:
		case err == nil:
			return batch, meta, -1, fmt.Errorf("%s in %s changed while it was to be merged", h.Name(), m.Repo)
		case errors.Is(err, sinks.ErrNotFound):
			m.Logger.Info("a segment went while it was to be merged: another host is at it", "err", err)
			return batch, meta, i, nil
		case unusable(err):
			r.Damaged = append(r.Damaged, err)
			return batch, meta, i, nil
		default:
			return batch, meta, -1, cannotRead(run[i].listed.Name, err)
		}
		batch.Entries = append(batch.Entries, batches[i].Entries...)
		batch.Marks = append(batch.Marks, batches[i].Marks...)
		meta.Revision = max(meta.Revision, h.Revision)
		meta.Member, meta.Cut = h.Member, h.Cut
	}
	meta.Unjoined = headers[0].Unjoined
	return batch, meta, -1, nil
}

// readBack proves that a merged segment is in the repository as it was made.
// Where it isn't it is removed again, so that it keeps nobody from another try: unless it
// has a signature that is not trusted here, and may be by another agent, with a newer key.
func (m *Merger) readBack(ctx context.Context, h Header) error {
	stored, _, err := Read(ctx, m.Repo, h.Name(), m.Identities...)
	if err == nil && (stored.Before != h.Before || stored.After != h.After || stored.Marks < h.Marks) {
		// Not removed: whoever stored it had another history under this name.
		return &ForkError{Timeline: m.Timeline, Index: h.FirstIndex, Objects: [2]string{h.Name(), "the segments that it covers"}, Err: errors.New("their chains differ")}
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("read back merged segment %s: %w", h.Name(), cannotRead(h.Name(), err))
	if unusable(err) && !errors.Is(err, repository.ErrUnsigned) {
		err = errors.Join(err, m.Repo.Sink().Delete(ctx, h.Name()))
	}
	return err
}

// sums are the chain's values before the first entry and after each.
func sums(h Header, entries []raftlog.Entry) []raftlog.Sum {
	all := make([]raftlog.Sum, 0, len(entries)+1)
	sum := h.Before
	all = append(all, sum)
	for _, e := range entries {
		sum = sum.Next(e)
		all = append(all, sum)
	}
	return all
}

// removeSuperseded removes what merged segments have replaced for long enough.
// Each of those is read whole once more before.
func (m *Merger) removeSuperseded(ctx context.Context, all *listing, r *MergeReport) error {
	byHolder := map[string][]repository.Segment{}
	var order []repository.Segment
	for _, pair := range all.superseded() {
		if m.isLocked(pair.segment.Object.Name) {
			r.Locked++
			continue
		}
		if recent(m.unheld, pair.segment.Object.Name) {
			continue
		}
		name := pair.by.Object.Name
		if byHolder[name] == nil {
			order = append(order, pair.by)
		}
		byHolder[name] = append(byHolder[name], pair.segment)
	}
	for _, by := range order {
		err := m.removeReplaced(ctx, by, byHolder[by.Object.Name], r)
		switch {
		case errors.Is(err, sinks.ErrDenied):
			r.Denied = err
			return nil // the others would be refused as well
		case err != nil && unusable(err):
			r.Damaged = append(r.Damaged, err)
		case errors.Is(err, sinks.ErrNotFound): // another host is at it
		case err != nil:
			return err
		}
	}
	return nil
}

// removeReplaced removes those of segments that the segment by holds, entry by
// entry and mark by mark.
func (m *Merger) removeReplaced(ctx context.Context, by repository.Segment, segments []repository.Segment, r *MergeReport) error {
	items, err := m.read(ctx, segments, r)
	if err != nil || len(items) == 0 {
		return err
	}
	h, batch, err := Read(ctx, m.Repo, by.Object.Name, m.Identities...)
	if err != nil {
		return cannotRead(by.Object.Name, err)
	}
	chain := sums(h, batch.Entries)
	for _, i := range items {
		if !contains(h, chain, batch.Marks, i.Header) {
			m.unheld[i.listed.Name] = time.Now()
			continue
		}
		switch err := m.Repo.Sink().Delete(ctx, i.listed.Name); {
		case errors.Is(err, sinks.ErrLocked):
			m.locked[i.listed.Name] = time.Now()
			r.Locked++
		case err != nil:
			return fmt.Errorf("remove superseded segment: %w", err)
		default:
			r.Removed++
		}
	}
	return nil
}

// contains reports whether a segment that was read holds all of i: the chain's value
// on both sides is the same, so the entries between are; and of the marks of these
// entries, and of the one before them, as many at least are there, from the time of
// i's first to that of its last.
func contains(h Header, chain []raftlog.Sum, marks []raftlog.Mark, i Header) bool {
	if i.FirstIndex < h.FirstIndex || i.LastIndex > h.LastIndex {
		return false
	}
	if chain[i.FirstIndex-h.FirstIndex] != i.Before || chain[i.LastIndex-h.FirstIndex+1] != i.After {
		return false
	}
	count := 0
	for _, m := range marks {
		if i.FirstIndex-1 <= m.Index && m.Index <= i.LastIndex && !m.Time.Before(i.FirstMark) && !m.Time.After(i.LastMark) {
			count++
		}
	}
	return count >= i.Marks
}

// lockedFor is how long a segment that was found locked is left alone: retentions
// are counted in days. So is one that the larger one around it does not hold: to
// find that out takes a read of all of that.
const lockedFor = 24 * time.Hour

func (m *Merger) isLocked(name string) bool { return recent(m.locked, name) }

func recent(known map[string]time.Time, name string) bool {
	since, ok := known[name]
	return ok && time.Since(since) < lockedFor
}

// enoughMarks is how many repeated marks are worth the work: some hours of an
// idle cluster.
const enoughMarks = 100

// mark is an alive mark as it is listed.
type mark struct {
	repository.MarkName
	object sinks.Object
}

func (m *Merger) listMarks(ctx context.Context, l *listing) error {
	var own map[repository.MarkName]bool // nil: all of them
	if m.Repo.Checks() {                 // a foreign one could make others needless
		marks, err := m.Repo.Marks(ctx, m.Timeline)
		if err != nil {
			return err
		}
		own = make(map[repository.MarkName]bool, len(marks))
		for _, n := range marks {
			own[n] = true
		}
	}
	for obj, err := range m.Repo.Sink().List(ctx, m.Timeline.String()+"/marks/", "") {
		if err != nil {
			return fmt.Errorf("list the marks of timeline %s in %s: %w", m.Timeline, m.Repo, err)
		}
		if n, err := repository.ParseMarkName(obj.Name); err == nil && (own == nil || own[n]) {
			l.marks = append(l.marks, mark{n, obj})
			l.seen(obj)
		}
	}
	return nil
}

// repeated are the alive marks between the first and the last one of the same
// member and index, and old enough: what they say, those two say as well.
func (m *Merger) repeated(l *listing) []mark {
	type place struct{ index, member uint64 }
	first, last := map[place]int{}, map[place]int{}
	for i, k := range l.marks {
		at := place{k.Index, k.Member}
		if _, ok := first[at]; !ok {
			first[at] = i
		}
		last[at] = i
	}
	var found []mark
	for i, k := range l.marks {
		at := place{k.Index, k.Member}
		if i != first[at] && i != last[at] && l.old(k.object, keep) {
			found = append(found, k)
		}
	}
	return found
}

// removeRepeated removes marks that say nothing new.
func (m *Merger) removeRepeated(ctx context.Context, l *listing, r *MergeReport) error {
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for _, k := range m.repeated(l) {
		group.Go(func() error {
			err := m.Repo.Sink().Delete(groupCtx, k.object.Name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sinks.ErrNotFound), errors.Is(err, sinks.ErrLocked):
			case errors.Is(err, sinks.ErrDenied):
				r.Denied = err
			case err != nil:
				return fmt.Errorf("remove a repeated mark: %w", err)
			default:
				r.Marks++
			}
			return nil
		})
	}
	return group.Wait()
}
