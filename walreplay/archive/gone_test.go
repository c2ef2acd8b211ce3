package archive

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"

	"github.com/requorum/requorum/sinks"
)

// goneSink is a repository that can be cut off.
type goneSink struct {
	sinks.Sink
	away  atomic.Bool
	full  atomic.Bool // gives, and takes nothing
	tried atomic.Int64
}

var errFull = errors.New("no space left on device")

func (g *goneSink) check() error {
	if !g.away.Load() {
		return nil
	}
	g.tried.Add(1)
	return errAway
}

func (g *goneSink) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	if g.full.Load() {
		g.tried.Add(1)
		return nil, errFull
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Sink.Create(ctx, name, opts)
}

func (g *goneSink) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Sink.Open(ctx, name, offset, length)
}

func (g *goneSink) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := g.check(); err != nil {
		return sinks.Object{}, err
	}
	return g.Sink.Stat(ctx, name)
}

func (g *goneSink) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	if err := g.check(); err != nil {
		return func(yield func(sinks.Object, error) bool) { yield(sinks.Object{}, err) }
	}
	return g.Sink.List(ctx, prefix, after)
}
