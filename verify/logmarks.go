package verify

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/segment"
)

// interesting are indexes at which the entry's term, or the chain's value, has to
// be known.
func (l *logCheck) interesting() []uint64 {
	var all []uint64
	for _, m := range l.bases() {
		all = append(all, m.Facts.RaftIndex)
	}
	for _, n := range l.log.Alive() {
		all = append(all, n.Index)
	}
	for _, t := range l.catalog.Timelines {
		if t.Parent != nil && t.Parent.Timeline == l.part.timeline {
			all = append(all, t.Parent.RaftIndex)
		}
	}
	l.proved(func(_ verdict.Entry, s verdict.Stretch) { all = append(all, s.Last) })
	return all
}

// parallelMarks is how many marks are fetched at once: they are waited for, not
// transferred.
const parallelMarks = 32

// checkMarks reads the alive marks of the part that is looked at. What they name
// is compared once the log was read.
func (l *logCheck) checkMarks(ctx context.Context) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelMarks)
	for _, n := range l.log.Alive() {
		if n.Index < l.part.from {
			continue
		}
		group.Go(func() error {
			a, err := segment.ReadMark(ctx, l.repo, n)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sinks.ErrNotFound): // thinned out, or pruned, meanwhile
			case err != nil:
				took(l.check, report.KindMark, n.String(), err)
			default:
				l.marks++
				entry := markedEntry{a.Index, a.Term}
				if known, ok := l.alive[entry]; !ok || n.String() < known {
					l.alive[entry] = n.String()
				}
			}
			return nil
		})
	}
	_ = group.Wait() // each error was taken
}

// markedEntry is an entry as a mark names it.
type markedEntry struct{ index, term uint64 }
