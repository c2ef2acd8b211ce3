package segment

import (
	"context"
	"errors"
	"sync"
)

// What is fetched ahead of the one who reads: enough bodies at once to hide the
// round trips, and no more raw bytes than a few large segments have.
const (
	parallelBodies = 8
	prefetchBytes  = 4 * MaxRaw
)

// errChanged says that an object is not the one that was listed under its
// name.
var errChanged = errors.New("it was deleted and stored anew since it was listed")

// fetched is a segment on its way.
type fetched struct {
	header Header
	batch  Batch
	err    error
	done   chan struct{}
}

// prefetcher reads segments in their order, some ahead.
type prefetcher struct {
	log    *Log
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	left  []Header   // not started
	queue []*fetched // started, not taken
	bytes int64      // raw ones in the queue
}

func (l *Log) prefetch(ctx context.Context, path []Header) *prefetcher {
	p := &prefetcher{log: l, left: path}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// next waits for the next segment.
func (p *prefetcher) next() *fetched {
	p.start()
	f := p.queue[0]
	<-f.done // ends with the context
	p.queue = p.queue[1:]
	p.bytes -= f.header.Object.RawSize
	p.start()
	return f
}

// start starts what fits.
func (p *prefetcher) start() {
	for len(p.left) > 0 && len(p.queue) < parallelBodies {
		size := p.left[0].Object.RawSize
		if len(p.queue) > 0 && p.bytes+size > prefetchBytes {
			return
		}
		f := &fetched{header: p.left[0], done: make(chan struct{})}
		p.left, p.queue, p.bytes = p.left[1:], append(p.queue, f), p.bytes+size
		p.wg.Go(func() {
			defer close(f.done)
			f.batch, f.err = p.log.body(p.ctx, f.header)
		})
	}
}

// end stops what is under way, and returns when it has stopped.
func (p *prefetcher) end() {
	p.cancel()
	p.wg.Wait()
}

// body reads a segment that was listed.
func (l *Log) body(ctx context.Context, listed Header) (Batch, error) {
	h, b, err := Read(ctx, l.repo.Sink(), listed.Name(), l.identities...)
	switch {
	case isDamage(err):
		l.spoil(listed.name(), err)
	case err == nil && (h.end() != listed.end() || h.begin() != listed.begin()):
		err = errChanged
	}
	return b, err
}
