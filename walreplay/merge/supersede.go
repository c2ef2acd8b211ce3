package merge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// removeSuperseded removes what merged segments have replaced for long enough.
// Each of those is read whole once more before.
func (m *Merger) removeSuperseded(ctx context.Context, all *listing, r *Report) error {
	byHolder := map[string][]repository.Segment{}
	var order []repository.Segment
	for _, pair := range all.superseded(m.Keep) {
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
func (m *Merger) removeReplaced(ctx context.Context, by repository.Segment, segments []repository.Segment, r *Report) error {
	items, err := m.read(ctx, segments, r)
	if err != nil || len(items) == 0 {
		return err
	}
	h, batch, err := segment.Read(ctx, m.Repo.Sink(), by.Object.Name, m.Identities...)
	if err != nil {
		return cannotRead(by.Object.Name, err)
	}
	chain := sums(h, batch.Entries)
	for _, i := range items {
		if !holds(h, chain, batch.Marks, i) {
			m.unheld[i.Object.Name] = time.Now()
			continue
		}
		switch err := m.Repo.Sink().Delete(ctx, i.Object.Name); {
		case errors.Is(err, sinks.ErrLocked):
			m.locked[i.Object.Name] = time.Now()
			r.Locked++
		case err != nil:
			return fmt.Errorf("remove superseded segment: %w", err)
		default:
			r.Removed++
		}
	}
	return nil
}

// holds tells whether a segment that was read holds all of i: the chain's value
// on both sides is the same, so the entries between are; and of the marks of these
// entries, and of the one before them, as many at least are there, from the time of
// i's first to that of its last.
func holds(h segment.Header, chain []raftlog.Sum, marks []raftlog.Mark, i item) bool {
	if i.First < h.FirstIndex || i.last > h.LastIndex {
		return false
	}
	if chain[i.First-h.FirstIndex] != i.before || chain[i.last-h.FirstIndex+1] != i.after {
		return false
	}
	count := 0
	for _, mark := range marks {
		at := mark.Time.UnixNano()
		if i.First-1 <= mark.Index && mark.Index <= i.last && i.firstMark <= at && at <= i.lastMark {
			count++
		}
	}
	return count >= i.marks
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
