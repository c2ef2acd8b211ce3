package rebuilding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

const (
	sampleSize = 4 << 20
	// sampleTime is enough for a place that is worth being taken.
	sampleTime = 15 * time.Second
)

// estimate is how long it would take to read what a way needs from elsewhere, by
// a sample of each place.
func (s *session) estimate(ctx context.Context, w *way) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sampleTime, fmt.Errorf("the first %d bytes did not come in %v", sampleSize, sampleTime))
	defer cancel()
	total := time.Duration(0)
	for _, o := range w.owners {
		if o.peer == nil || o.bytes == 0 {
			continue
		}
		took, n, err := s.samplePeer(ctx, o)
		if err != nil {
			return 0, because(ctx, err)
		}
		total += scaled(took, n, o.bytes)
	}
	if r := w.repository; r != nil && r.bytes > 0 {
		took, n, err := sampleRepository(ctx, r)
		if err != nil {
			return 0, because(ctx, err)
		}
		total += scaled(took, n, r.bytes)
	}
	return total, nil
}

func scaled(took time.Duration, sample, all int64) time.Duration {
	if sample == 0 {
		return 0
	}
	return time.Duration(float64(took) * float64(all) / float64(sample))
}

// because is why a context ended, where that is the reason of an error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (s *session) samplePeer(ctx context.Context, o *owned) (time.Duration, int64, error) {
	var largest protocol.File
	for _, f := range o.files {
		if f.Size > largest.Size {
			largest = f
		}
	}
	n := min(largest.Size, sampleSize)
	began := time.Now()
	err := o.peer.client.Copy(ctx, io.Discard, protocol.Aside, largest.Name, 0, n)
	return time.Since(began), n, err
}

func sampleRepository(ctx context.Context, r *stored) (_ time.Duration, n int64, err error) {
	object := r.base
	for _, segment := range r.log {
		if segment.Size > object.Size {
			object = segment
		}
	}
	began := time.Now()
	in, err := r.Sink().Open(ctx, object.Name, 0, min(object.Size, sampleSize))
	if err != nil {
		return 0, 0, err
	}
	n, err = io.Copy(io.Discard, in)
	return time.Since(began), n, errors.Join(err, in.Close())
}
