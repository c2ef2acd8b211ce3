package archive

import (
	"context"
	"io"
	"iter"
	"sync/atomic"

	"github.com/requorum/requorum/sinks"
)

// Requests counts what was asked of the repository.
type Requests struct {
	Puts  int64 `json:"puts"`
	Gets  int64 `json:"gets"`
	Lists int64 `json:"lists"` // one listing may be several requests
}

// counting is a sink that counts.
type counting struct {
	sinks.Sink
	puts, gets, lists atomic.Int64
}

// Unwrap returns the sink that is counted.
func (c *counting) Unwrap() sinks.Sink { return c.Sink }

// Create counts as the put that it becomes.
func (c *counting) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	c.puts.Add(1)
	return c.Sink.Create(ctx, name, opts)
}

// Open counts as a get.
func (c *counting) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	c.gets.Add(1)
	return c.Sink.Open(ctx, name, offset, length)
}

// Stat counts as a get.
func (c *counting) Stat(ctx context.Context, name string) (sinks.Object, error) {
	c.gets.Add(1)
	return c.Sink.Stat(ctx, name)
}

// List counts as a listing.
func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	c.lists.Add(1)
	return c.Sink.List(ctx, prefix, after)
}

func (c *counting) requests() Requests {
	return Requests{Puts: c.puts.Load(), Gets: c.gets.Load(), Lists: c.lists.Load()}
}
