package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// storeOrphans stores what is spooled for any timeline and would not be stored
// by going on behind an archive's end: another archiver may have passed it by,
// or the cluster may have left that timeline. ids are those of the repository.
func (s *session) storeOrphans(ctx context.Context, ids []repository.TimelineID) error {
	for _, id := range s.spool.timelines() {
		i := slices.Index(ids, id)
		if i < 0 {
			if id.ClusterID != s.id.ClusterID || len(ids) > 0 {
				s.a.failed(fmt.Errorf("the spool %s holds segments of timeline %s, which is not in the repository: they stay there", s.SpoolDir, id))
			}
			continue
		}
		newest := id.ClusterID == s.id.ClusterID && (i+1 == len(ids) || ids[i+1].ClusterID != id.ClusterID)
		if err := s.storeSpooled(ctx, id, newest); err != nil {
			return err
		}
	}
	return nil
}

// storeSpooled stores what is spooled for a timeline and not covered by what is
// listed there. keepEnd leaves what reaches beyond the archive's end: that is
// drained while the log is read on, or else the log holds it. Where neither is
// so, the archive is gone on with behind a hole, and it is stored then.
func (s *session) storeSpooled(ctx context.Context, id repository.TimelineID, keepEnd bool) error {
	mine := slices.DeleteFunc(slices.Clone(s.spool.segments), func(h segment.Header) bool { return h.Timeline != id })
	if len(mine) == 0 {
		return nil
	}
	var archived []segment.Header
	err := s.inTime(ctx, putLimit, func(ctx context.Context) (err error) {
		if keepEnd {
			end, _, err := segment.Newest(ctx, s.repo, id)
			if err != nil {
				return err
			}
			overlapping := s.spool.overlapping(id, end.LastIndex)
			mine = slices.DeleteFunc(mine, func(h segment.Header) bool {
				return h.FirstIndex > end.LastIndex || len(overlapping) > 0 && overlapping[0].Name() == h.Name()
			})
		}
		archived, err = s.archivedNear(ctx, id, mine)
		return err
	})
	if err != nil {
		return err
	}
	left := map[point]bool{} // where the spool is on another way than the archive
	for _, h := range mine {
		switch {
		case left[point{index: h.FirstIndex - 1, sum: h.Before}] || leaves(archived, h):
			left[point{index: h.LastIndex, sum: h.After}] = true
			s.spool.disputed[h.Name()] = true
			s.a.failed(fmt.Errorf("spooled segment %s in %s holds other entries than those archived: it stays there", h.Name(), s.SpoolDir))
		case !covers(archived, h.FirstIndex, h.LastIndex):
			if err := s.storeOrphan(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeOrphan stores one spooled segment under its own name or, where that is
// of one that ends sooner, a level higher.
func (s *session) storeOrphan(ctx context.Context, h segment.Header) error {
	object, err := s.spool.get(h)
	var damage *snapshot.DamagedError
	if errors.As(err, &damage) {
		s.a.failed(err)
		return s.spool.remove(h.Name())
	}
	if err != nil {
		return err
	}
	o := s.storeNow(ctx, h, object)
	if o.winner != nil && !same(*o.winner, h) && o.winner.LastIndex < h.LastIndex {
		var higher segment.Header
		if higher, object, err = segment.Relabel(h, object, h.Level+1); err != nil {
			return err
		}
		o = s.storeNow(ctx, higher, object)
	}
	switch {
	case o.stored:
		s.a.update(func(st *State) { st.Segments, st.Bytes = st.Segments+1, st.Bytes+h.Size() })
		return s.spool.remove(h.Name())
	case o.winner != nil && (o.winner.After == h.After && o.winner.LastIndex == h.LastIndex):
		return s.spool.remove(h.Name())
	case o.winner != nil:
		return errAgain // stored since the listing
	}
	return &awayError{o.err}
}

func (s *session) storeNow(ctx context.Context, h segment.Header, object []byte) outcome {
	ctx, cancel := context.WithTimeout(ctx, putLimit)
	defer cancel()
	return putAndSee(ctx, s.repo.Sink(), h, object)
}

// aheadTried is how many segments that begin before a range are looked at: their
// names do not tell where they end.
const aheadTried = 4

// archivedNear reads the headers of what is listed near spooled segments.
func (s *session) archivedNear(ctx context.Context, id repository.TimelineID, spooled []segment.Header) ([]segment.Header, error) {
	if len(spooled) == 0 {
		return nil, nil
	}
	listed, err := s.repo.Segments(ctx, id)
	if err != nil {
		return nil, err
	}
	first, last := spooled[0].FirstIndex, uint64(0)
	for _, h := range spooled {
		first, last = min(first, h.FirstIndex), max(last, h.LastIndex)
	}
	var near []repository.Segment
	ahead := 0 // of level 0; they are listed in order
	for _, l := range slices.Backward(listed) {
		switch {
		case l.First > last, l.Level > 0 && l.Last+1 < first:
			continue
		case l.Level == 0 && l.First < first:
			if ahead++; ahead > aheadTried {
				continue
			}
		}
		near = append(near, l)
	}
	headers := make([]segment.Header, len(near))
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, l := range near {
		group.Go(func() error {
			h, err := segment.ReadHeader(limited, s.repo.Sink(), l.String())
			var damage *snapshot.DamagedError
			switch {
			case errors.Is(err, sinks.ErrNotFound), errors.As(err, &damage):
				return nil
			case err == nil && h.Size() == l.Object.Size:
				headers[i] = h
			}
			return err
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(headers, func(h segment.Header) bool { return h.Entries == 0 }), err
}

// covers tells that segments hold all entries from first to last.
func covers(archived []segment.Header, first, last uint64) bool {
	for first <= last {
		next := first
		for _, h := range archived {
			if h.Holds(next) {
				next = h.LastIndex + 1
			}
		}
		if next == first {
			return false
		}
		first = next
	}
	return true
}

// leaves tells that the archive goes another way than h: from the same point to
// the same index, and with another value of the chain there.
func leaves(archived []segment.Header, h segment.Header) bool {
	at := map[uint64]raftlog.Sum{h.FirstIndex - 1: h.Before}
	for grown := true; grown; {
		grown = false
		for _, a := range archived {
			if sum, ok := at[a.FirstIndex-1]; ok && sum == a.Before && a.LastIndex <= h.LastIndex {
				if _, known := at[a.LastIndex]; !known {
					at[a.LastIndex], grown = a.After, true
				}
			}
		}
	}
	sum, ok := at[h.LastIndex]
	return ok && sum != h.After
}
