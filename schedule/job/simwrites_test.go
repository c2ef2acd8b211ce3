package job

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// writes watches what is stored, and fails the test where a result or a claim
// changes or is stored twice.
type writes struct {
	*sinktest.Memory
	mu     sync.Mutex
	taken  map[string]int
	sorted []string // Memory sorts at each listing, which takes months of its own
}

func (w *writes) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, _ := slices.BinarySearch(w.sorted, max(prefix, after))
	var found []string
	for ; i < len(w.sorted) && strings.HasPrefix(w.sorted[i], prefix); i++ {
		if w.sorted[i] > after {
			found = append(found, w.sorted[i])
		}
	}
	return func(yield func(sinks.Object, error) bool) {
		for _, name := range found {
			if !yield(sinks.Object{Name: name}, nil) {
				return
			}
		}
	}
}

func (w *writes) Create(ctx context.Context, name string, o sinks.CreateOptions) (sinks.Writer, error) {
	inner, err := w.Memory.Create(ctx, name, o)
	return &watchedWriter{inner, w, name}, err
}

type watchedWriter struct {
	sinks.Writer
	w    *writes
	name string
}

func (c *watchedWriter) Commit(ctx context.Context) (sinks.Object, error) {
	obj, err := c.Writer.Commit(ctx)
	if err == nil {
		c.w.mu.Lock()
		c.w.taken[c.name]++
		i, _ := slices.BinarySearch(c.w.sorted, c.name)
		c.w.sorted = slices.Insert(c.w.sorted, i, c.name)
		c.w.mu.Unlock()
	}
	return obj, err
}

// effects stand for what a job stores under a name that follows from job and
// slot: who comes second gets nothing.
type effects struct {
	mu     sync.Mutex
	first  map[string]string // slot → who
	second int
	runs   map[string]int
}
