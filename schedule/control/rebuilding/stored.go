package rebuilding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// stored is what a way reads of a repository.
type stored struct {
	*opened
	name  string
	base  sinks.Object // the full snapshot; zero where only log is read
	log   []sinks.Object
	bytes int64
}

// stored finds a source's pieces in the repositories of the configuration: in the one
// that it names before the others, which may be copies of it, or the same one by
// another URL.
func (s *session) stored(ctx context.Context, source recovery.Source) (*stored, error) {
	timelines := map[repository.TimelineID][]recovery.Piece{}
	if source.Base.Backup != "" {
		timelines[source.Base.Timeline] = nil
	}
	for _, p := range source.Log {
		t, is := rebuild.TimelineOf(p.Owner)
		if !is {
			continue
		}
		timelines[t] = append(timelines[t], p)
	}
	s.openRepositories(ctx)
	var why []error
	for _, o := range namedFirst(s.repositories, source.Base.Repository) {
		found, err := look(ctx, o, source, timelines)
		if err == nil {
			return found, nil
		}
		why = append(why, err)
	}
	name := source.Base.Repository
	if name == "" {
		name = "with the plan's timeline"
	}
	return nil, fmt.Errorf("the repository %s: %w", name, errors.Join(append(why, s.unopened,
		errors.New("this host reads those that its own configuration names (repositories in the file of agent control)"))...))
}

// namedFirst puts the repository of a URL before the others.
func namedFirst(all []*opened, name string) []*opened {
	all = slices.Clone(all)
	if i := slices.IndexFunc(all, func(o *opened) bool { return o.String() == name }); i > 0 {
		named := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, named)
	}
	return all
}

func look(ctx context.Context, o *opened, source recovery.Source, timelines map[repository.TimelineID][]recovery.Piece) (*stored, error) {
	found := &stored{opened: o, name: o.String()}
	for t, pieces := range timelines {
		if t == source.Base.Timeline && source.Base.Backup != "" {
			fulls, err := o.Fulls(ctx, t)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(fulls, func(f repository.Full) bool { return f.ID == source.Base.Backup && f.Complete })
			if i < 0 {
				return nil, fmt.Errorf("there is no backup %s of timeline %s", source.Base.Backup, t)
			}
			// The largest of its objects, for a sample.
			found.base = slices.MaxFunc(fulls[i].Objects, func(a, b sinks.Object) int { return cmp.Compare(a.Size, b.Size) })
		}
		if len(pieces) == 0 {
			continue
		}
		segments, err := o.Segments(ctx, t)
		if err != nil {
			return nil, err
		}
		if len(segments) == 0 {
			return nil, fmt.Errorf("there is no log of timeline %s", t)
		}
		for _, p := range pieces {
			found.log = append(found.log, covering(segments, p.First, p.Last)...)
		}
	}
	found.bytes = found.base.Size
	for _, segment := range found.log {
		found.bytes += segment.Size
	}
	return found, nil
}

// covering are about the segments that a reader of these entries opens: merged ones
// first, then what lies behind them.
func covering(segments []repository.Segment, first, last uint64) (all []sinks.Object) {
	merged := slices.Clone(segments)
	slices.SortStableFunc(merged, func(a, b repository.Segment) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
	})
	covered := first - 1
	for _, s := range merged {
		if s.Level > 0 && s.First <= last && s.Last > covered {
			all, covered = append(all, s.Object), s.Last
		}
	}
	for _, s := range merged {
		if s.Level == 0 && s.First > covered && s.First <= last {
			all = append(all, s.Object)
		}
	}
	return all
}
