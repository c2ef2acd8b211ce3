package segment

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// newestTried is how many segments Newest looks at in one go: more than one,
// since the one with the highest first index need not be the one that ends
// last, and since it may be damaged.
const newestTried = 16

// Newest is the header of the segment of timeline t that ends last, of those
// that are not damaged, and false where there is none. It lists all segments:
// for a writer's start, not for every cut. A segment that a newer version wrote
// is snapshot.ErrNewerFormat: who does not understand it must not go on from
// another.
func Newest(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (Header, bool, error) {
	segments, err := repo.Segments(ctx, t)
	if err != nil {
		return Header{}, false, err
	}
	slices.SortStableFunc(segments, func(a, b repository.Segment) int {
		return cmp.Compare(max(b.First, b.Last), max(a.First, a.Last))
	})
	for len(segments) > 0 {
		n := min(newestTried, len(segments))
		h, ok, err := newestOf(ctx, repo.Sink(), segments[:n])
		if ok || err != nil {
			return h, ok, err
		}
		segments = segments[n:]
	}
	return Header{}, false, nil
}

func newestOf(ctx context.Context, s sinks.Sink, segments []repository.Segment) (Header, bool, error) {
	headers := make([]Header, len(segments))
	group, ctx := errgroup.WithContext(ctx)
	for i, segment := range segments {
		group.Go(func() error {
			h, err := readListed(ctx, s, segment)
			switch {
			case err == nil:
				headers[i] = h
			case errors.Is(err, sinks.ErrNotFound), isDamage(err):
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Header{}, false, err
	}
	newest := slices.MaxFunc(headers, func(a, b Header) int { return cmp.Compare(a.LastIndex, b.LastIndex) })
	return newest, newest.Format != 0, nil
}
