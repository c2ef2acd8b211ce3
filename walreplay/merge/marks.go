package merge

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// enoughMarks is how many repeated marks are worth the work: some hours of an
// idle cluster.
const enoughMarks = 100

// mark is an alive mark as it is listed.
type mark struct {
	repository.MarkName
	object sinks.Object
}

func (m *Merger) listMarks(ctx context.Context, l *listing) error {
	for obj, err := range m.Repo.Sink().List(ctx, m.Timeline.String()+"/marks/", "") {
		if err != nil {
			return fmt.Errorf("list the marks of timeline %s in %s: %w", m.Timeline, m.Repo, err)
		}
		if n, err := repository.ParseMarkName(obj.Name); err == nil {
			l.marks = append(l.marks, mark{n, obj})
			l.seen(obj)
		}
	}
	return nil
}

// repeated are the alive marks between the first and the last one of the same
// member and index, and old enough: what they tell, those two tell as well.
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
		if i != first[at] && i != last[at] && l.old(k.object, m.Keep) && !m.stamped[k.object.Name] {
			found = append(found, k)
		}
	}
	return found
}

// removeRepeated removes marks that tell nothing new. One with a stamp stays.
func (m *Merger) removeRepeated(ctx context.Context, l *listing, r *Report) error {
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(headerReaders)
	for _, k := range m.repeated(l) {
		group.Go(func() error {
			alive, err := segment.ReadMark(groupCtx, m.Repo, k.MarkName)
			if err == nil && alive.Stamp == nil {
				err = m.Repo.Sink().Delete(groupCtx, k.object.Name)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sinks.ErrNotFound), errors.Is(err, sinks.ErrLocked):
			case errors.Is(err, sinks.ErrDenied):
				r.Denied = err
			case err != nil && unusable(err):
				r.Damaged = append(r.Damaged, err)
			case err != nil:
				return fmt.Errorf("remove a repeated mark: %w", err)
			case alive.Stamp != nil:
				m.stamped[k.object.Name] = true
			default:
				r.Marks++
			}
			return nil
		})
	}
	return group.Wait()
}
