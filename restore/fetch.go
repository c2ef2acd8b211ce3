package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/requorum/requorum/snapshot"
)

const (
	chunkSize = 1 << 20
	// chunks bounds the memory of a fetch, and how far the fastest file may be
	// ahead of the slowest.
	chunks = 16
)

// fetch reads the image once and writes its bytes to all writers, each by a
// goroutine of its own. When it returns nil, the image's own checks passed, its
// size is the planned one, and so is its SHA-256 if the plan has one.
func fetch(ctx context.Context, image snapshot.Image, src Source, to []io.Writer, progress func(done int64)) (err error) {
	var sum hash.Hash
	if src.DatabaseSHA256 != "" {
		// Open compares the sum itself where the image knows one.
		if h, ok := image.(hashed); !ok || h.DatabaseSHA256() != src.DatabaseSHA256 {
			sum = sha256.New()
			to = append(slices.Clip(to), sum)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := image.Open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", image.Name(), err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()

	f := newFanOut(to)
	n, err := f.run(ctx, r, src.Size, progress)
	if err != nil {
		return fmt.Errorf("restore from %s: %w", image.Name(), err)
	}
	if n != src.Size {
		return &snapshot.DamagedError{Object: image.Name(), Offset: n, Err: fmt.Errorf("it ends after %d of %d bytes", n, src.Size)}
	}
	if sum != nil {
		if got := hex.EncodeToString(sum.Sum(nil)); got != src.DatabaseSHA256 {
			return &snapshot.DamagedError{Object: image.Name(), Offset: -1, Err: fmt.Errorf("its SHA-256 is %s, the plan has %s", got, src.DatabaseSHA256)}
		}
	}
	return nil
}

// fanOut hands chunks of one reader to several writers.
type fanOut struct {
	free  chan *chunk
	lanes []chan *chunk
	wg    sync.WaitGroup

	failed atomic.Pointer[error]
}

type chunk struct {
	buf  []byte
	len  int
	refs atomic.Int32
}

func newFanOut(to []io.Writer) *fanOut {
	f := &fanOut{free: make(chan *chunk, chunks)}
	for range chunks {
		f.free <- &chunk{buf: make([]byte, chunkSize)}
	}
	for _, w := range to {
		f.lane(w)
	}
	return f
}

// lane starts a writer. After an error it only gives chunks back, so that the
// reader never waits for it.
func (f *fanOut) lane(w io.Writer) {
	ch := make(chan *chunk, chunks)
	f.lanes = append(f.lanes, ch)
	f.wg.Go(func() {
		for c := range ch {
			if f.failed.Load() == nil {
				if _, err := w.Write(c.buf[:c.len]); err != nil {
					f.failed.CompareAndSwap(nil, &err)
				}
			}
			if c.refs.Add(-1) == 0 {
				f.free <- c
			}
		}
	})
}

// run reads until io.EOF and waits until all is written.
func (f *fanOut) run(ctx context.Context, r io.Reader, size int64, progress func(int64)) (int64, error) {
	n, err := f.feed(ctx, r, size, progress)
	for _, ch := range f.lanes {
		close(ch)
	}
	f.wg.Wait()
	if failed := f.failed.Load(); failed != nil {
		return n, *failed
	}
	return n, err
}

func (f *fanOut) feed(ctx context.Context, r io.Reader, size int64, progress func(int64)) (total int64, err error) {
	for err == nil {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if f.failed.Load() != nil {
			return total, nil // run reports it
		}
		c := <-f.free
		// Not io.ReadFull: it cannot tell a reader that failed with
		// io.ErrUnexpectedEOF from one that ended.
		for c.len = 0; c.len < len(c.buf) && err == nil; {
			var n int
			n, err = r.Read(c.buf[c.len:])
			c.len += n
		}
		total += int64(c.len)
		if total > size {
			return total, fmt.Errorf("it has more than the planned %d bytes", size)
		}
		c.refs.Store(int32(len(f.lanes)))
		for _, ch := range f.lanes {
			ch <- c
		}
		progress(total)
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}
