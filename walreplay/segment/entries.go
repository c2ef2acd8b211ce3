package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Entries reads the entries from index first to index last, in order and
// without a hole; with last 0, to the end of the span that first is in. A last
// below first is no entry, and no error.
//
// It reads a cover: segments of any levels that hold the range, the fewest
// there are. Each is joined to the one before it where both agree: by the
// chain's value, or, where a chain begins anew, by equal entries that both
// hold. One that is damaged, or deleted after it was merged, is replaced by
// others, the listing being made anew for that.
//
// The error is the last that is yielded. A range that the log does not hold is
// a *MissingError, yielded before any entry unless only reading showed it; it
// wraps the damage that is the cause. Segments with different histories are a
// *ForkError. An encrypted segment without a fitting identity is a
// *codec.IdentityError.
//
// Up to eight segments are fetched at once, and the entries of ten kept in
// memory at most, and of fewer where they are large.
func (l *Log) Entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		if last != 0 && last < first {
			return
		}
		r := &reading{log: l, next: max(1, first), last: last, avoided: map[repository.SegmentName]bool{}, unjoined: map[pair]bool{}}
		follow := func(v *view, path []Header) (Header, error) { return r.follow(ctx, v, path, yield) }
		if err := r.run(ctx, follow); err != nil {
			yield(raftlog.Entry{}, err)
		}
	}
}

// Probe reports whether Entries could begin to read a range, from the beginnings of
// the first and of the last segment. The error is as that of Entries.
func (l *Log) Probe(ctx context.Context, first, last uint64) error {
	r := &reading{log: l, next: max(1, first), last: last, avoided: map[repository.SegmentName]bool{}, unjoined: map[pair]bool{}}
	return r.run(ctx, func(_ *view, path []Header) (Header, error) {
		for _, h := range []Header{path[0], path[len(path)-1]} {
			read, err := probe(ctx, l.repo, h.Name(), l.identities)
			if err == nil && l.isPlain(read) {
				err = ErrNotAsNamed // that of one whose header was read before is no part of the path
			}
			if err != nil {
				return h, err
			}
		}
		return Header{}, nil
	})
}

// reading is one iteration over entries.
type reading struct {
	log        *Log
	next, last uint64
	tip        *tip // where it stands; nil before the first segment

	avoided  map[repository.SegmentName]bool // that turned out to be damaged or gone
	unjoined map[pair]bool                   // that turned out not to join
	cause    error                           // the latest of those findings
	relisted bool                            // since the last progress
	stopped  bool                            // by the consumer
}

// pair is a segment and the one that was to be read after it.
type pair [2]repository.SegmentName

// tip is the last entry that was yielded, and the segment it was read from.
type tip struct {
	index   uint64
	sum     raftlog.Sum // of the chain that the segment is on
	segment Header
	entries []raftlog.Entry // of the segment
}

// run finds the segments of the range and has them read; where that fails for one
// that others can stand in for, once more.
func (r *reading) run(ctx context.Context, read func(*view, []Header) (failed Header, err error)) error {
	for {
		v := r.log.current()
		path, err := r.plan(v)
		if err != nil && v.byNames {
			if v, err = r.log.readAll(ctx, v); err == nil {
				path, err = r.plan(v)
			}
		}
		if err != nil {
			return err
		}
		failed, err := read(v, path)
		if err == nil || r.stopped {
			return nil
		}
		var fork *ForkError
		gone := errors.Is(err, sinks.ErrNotFound) || errors.Is(err, errChanged)
		switch {
		case v.byNames && (gone || snapshot.IsDamaged(err) || errors.Is(err, ErrNotAsNamed) || errors.Is(err, errUnjoined) || errors.As(err, &fork)):
			if _, err := r.log.readAll(ctx, v); err != nil {
				return err
			}
			if !snapshot.IsDamaged(err) {
				continue
			}
		case errors.Is(err, errUnjoined):
			r.unjoined[pair{r.tip.segment.name(), failed.name()}] = true
		case errors.As(err, &fork):
			return err
		case snapshot.IsDamaged(err):
			r.avoided[failed.name()] = true
		case gone:
			if err := r.relist(ctx, v, failed); err != nil {
				return err
			}
		default:
			return err
		}
		r.cause = err
	}
}

// relist lists anew where a segment was gone, once until there is progress.
func (r *reading) relist(ctx context.Context, v *view, gone Header) error {
	if r.relisted {
		// It stays listed, and what it replaced may still be there.
		r.avoided[gone.name()] = true
		r.log.spoil(gone.name(), fmt.Errorf("%s is listed in %s, but %w", gone.Name(), r.log.repo, sinks.ErrNotFound))
		return r.log.Refresh(ctx)
	}
	r.relisted = true
	r.log.forget(gone.Name())
	_, err := r.log.refresh(ctx, v)
	return err
}

// plan finds the way from where the reading stands to its end.
func (r *reading) plan(v *view) ([]Header, error) {
	s := search{
		view:   v,
		low:    r.next,
		usable: func(h Header) bool { return !r.avoided[h.name()] && !r.log.spoiled(h.name()) },
		joins:  func(a, b Header) bool { return !r.unjoined[pair{a.name(), b.name()}] },
		start:  func(h Header) bool { return h.Holds(r.next) },
	}
	if t := r.tip; t != nil {
		s.low = t.index
		s.start = func(h Header) bool {
			return s.joins(t.segment, h) && (h.Holds(t.index) || h.begin() == point{t.index, t.sum} && !h.ChainStart)
		}
	}
	w := s.run()
	if r.last == 0 && w.farthest >= 0 {
		r.last = v.segments[w.farthest].LastIndex
	}
	path := w.through(v, max(r.last, r.next))
	if path == nil {
		return nil, r.missing(v, w)
	}
	headers := make([]Header, len(path))
	for i, at := range path {
		headers[i] = v.segments[at]
		for _, f := range v.forks {
			if f.chain == v.chains[at] && r.next <= f.index && f.index <= r.last {
				return nil, &ForkError{r.log.timeline, f.index, f.objects, errors.New("the chain has two values")}
			}
		}
	}
	return headers, nil
}

// missing says what no way leads to.
func (r *reading) missing(v *view, w ways) error {
	var fork *ForkError
	if errors.As(r.cause, &fork) {
		return r.cause
	}
	m := &MissingError{Timeline: r.log.timeline, First: r.next, Last: max(r.last, r.next), Err: r.cause}
	if w.farthest >= 0 {
		m.First = max(m.First, v.segments[w.farthest].LastIndex+1)
	}
	if damaged := r.log.Damaged(); m.Err == nil {
		if d := slices.IndexFunc(damaged, func(d Damage) bool { return d.MayHold(m.First, m.Last) }); d >= 0 {
			m.Err = damaged[d].Err
		}
	}
	return m
}

// follow reads the segments of a path and yields their entries. failed is the
// segment that an error is about.
func (r *reading) follow(ctx context.Context, v *view, path []Header, yield func(raftlog.Entry, error) bool) (failed Header, err error) {
	p := r.log.prefetch(ctx, path)
	defer p.end()
	for i, h := range path {
		f := p.next()
		if f.err != nil {
			return h, f.err
		}
		if !h.isRead() && r.tip != nil && !mayFollow(r.tip.segment, f.read) {
			return h, ErrNotAsNamed
		}
		h = f.read
		if err := r.join(v, h, f.batch.Entries); err != nil {
			return h, err
		}
		until := min(h.LastIndex, r.last)
		if i+1 < len(path) {
			// The next one may be a chain start that ends sooner: it takes over where
			// both end.
			until = min(until, path[i+1].LastIndex)
		}
		for ; r.next <= until; r.next++ {
			if !yield(f.batch.Entries[r.next-h.FirstIndex], nil) {
				r.stopped = true
				return Header{}, nil
			}
			r.relisted = false
		}
		r.tip = &tip{r.next - 1, sumAt(h, f.batch.Entries, r.next-1), h, f.batch.Entries}
	}
	return Header{}, nil
}

// sumAt is the chain's value at an index that a segment holds.
func sumAt(h Header, entries []raftlog.Entry, index uint64) raftlog.Sum {
	if index == h.LastIndex {
		return h.After
	}
	sum := h.Before
	for _, e := range entries[:index-h.FirstIndex+1] {
		sum = sum.Next(e)
	}
	return sum
}

// errUnjoined says that nothing proves two segments to be of one history.
var errUnjoined = errors.New("nothing joins them")

// join proves that a segment goes on from where the reading stands.
func (r *reading) join(v *view, h Header, entries []raftlog.Entry) error {
	t := r.tip
	switch {
	case t == nil, h.begin() == point{t.index, t.sum} && !h.ChainStart:
		return nil
	case h.Holds(t.index) && sumAt(h, entries, t.index) == t.sum:
		return nil
	}
	fork := &ForkError{Timeline: r.log.timeline, Objects: [2]string{t.segment.Name(), h.Name()}}
	for i := max(h.FirstIndex, t.segment.FirstIndex); i <= t.index; i++ {
		mine, other := t.entries[i-t.segment.FirstIndex], entries[i-h.FirstIndex]
		if !mine.Equal(other) {
			fork.Index, fork.Err = i, fmt.Errorf("%s and %s", mine, other)
			return fork
		}
	}
	if h.ChainStart {
		return nil
	}
	fork.Index = max(h.FirstIndex, t.segment.FirstIndex) - 1
	fork.Err = errors.New("their chains differ, though not the entries that both hold")
	if !v.related(t.segment, h) {
		fork.Err = fmt.Errorf("%w: %w", errUnjoined, fork.Err)
	}
	return fork
}
