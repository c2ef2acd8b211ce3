package segment

import (
	"context"

	"github.com/requorum/requorum/sinks"
)

// lockWatcher remembers whether the last object was to be locked.
type lockWatcher struct {
	sinks.Sink
	lock bool
}

func (w *lockWatcher) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	w.lock = opts.Lock
	return w.Sink.Create(ctx, name, opts)
}
