package rebuilding

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/sinks"
)

// meter counts what is read of a sink, and how long that took.
type meter struct {
	sinks.Sink
	bytes, nanoseconds atomic.Int64
}

// Unwrap returns the sink without the meter.
func (m *meter) Unwrap() sinks.Sink { return m.Sink }

// Open counts what is read.
func (m *meter) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	began := time.Now()
	r, err := m.Sink.Open(ctx, name, offset, length)
	m.nanoseconds.Add(int64(time.Since(began)))
	if err != nil {
		return nil, err
	}
	return &meteredReader{r, m}, nil
}

type meteredReader struct {
	io.ReadCloser
	meter *meter
}

func (r *meteredReader) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := r.ReadCloser.Read(p)
	r.meter.nanoseconds.Add(int64(time.Since(began)))
	r.meter.bytes.Add(int64(n))
	return n, err
}
