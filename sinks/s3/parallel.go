package s3

import (
	"context"
	"errors"
	"io"
	"sync"
)

var errReaderClosed = errors.New("the reader is closed")

// parallelReader reads chunks ahead and hands them out in order. It holds
// chunksAhead+1 chunks at most.
type parallelReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	order  chan chan chunk // in the order of the object
	spare  chan []byte     // as many as may be held: taking one is the bound
	going  sync.WaitGroup

	current chunk
	rest    []byte
	err     error
}

type chunk struct {
	data []byte
	err  error
}

// newParallelReader reads from first on up to end.
func newParallelReader(ctx context.Context, src *source, first *chunkReader, end int64) *parallelReader {
	r := &parallelReader{
		order: make(chan chan chunk, chunksAhead),
		spare: make(chan []byte, chunksAhead+1),
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for range cap(r.spare) {
		r.spare <- nil // made when first used
	}
	r.going.Go(func() {
		defer close(r.order)
		next := first
		for {
			var buffer []byte
			select {
			case buffer = <-r.spare:
			case <-r.ctx.Done():
				next.Close() //nolint:errcheck // given up
				return
			}
			result := make(chan chunk, 1)
			c := next
			c.ctx = r.ctx
			r.going.Go(func() { result <- fetch(c, buffer) })
			r.order <- result // never blocks for long: there are as many places as buffers
			if c.end == end {
				return
			}
			next = &chunkReader{ctx: r.ctx, source: src, at: c.end, end: min(c.end+chunkSize, end)}
		}
	})
	return r
}

func fetch(c *chunkReader, buffer []byte) chunk {
	if buffer == nil {
		buffer = make([]byte, chunkSize)
	}
	n, err := io.ReadFull(c, buffer[:c.end-c.at])
	if err == nil {
		err = c.Close()
	} else {
		c.Close() //nolint:errcheck // the first error is the one to report
	}
	return chunk{buffer[:n], err}
}

func (r *parallelReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		if r.current.data != nil {
			r.spare <- r.current.data[:cap(r.current.data)]
			r.current = chunk{}
		}
		result, more := <-r.order
		if !more {
			if r.err = r.ctx.Err(); r.err == nil {
				r.err = io.EOF
			}
			break
		}
		r.current = <-result
		r.rest, r.err = r.current.data, r.current.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// Close ends what is still being read.
func (r *parallelReader) Close() error {
	r.cancel()
	for result := range r.order {
		<-result
	}
	r.going.Wait()
	if r.err == nil {
		r.err, r.rest = errReaderClosed, nil
	}
	return nil
}
