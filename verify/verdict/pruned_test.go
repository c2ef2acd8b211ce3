package verdict

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// pruning is a sink from which the first verdicts are pruned when the last of them
// is about to be read, and all before it were.
type pruning struct {
	sinks.Sink
	t      *testing.T
	before sync.WaitGroup
	names  []string
	once   sync.Once
}

func (p *pruning) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	last := len(p.names) - 1
	if name == p.names[last] {
		p.once.Do(func() {
			p.before.Wait()
			for _, n := range p.names {
				if err := p.Delete(ctx, n); err != nil {
					p.t.Error(err)
				}
			}
		})
	}
	r, err := p.Sink.Open(ctx, name, offset, length)
	if err == nil && slices.Contains(p.names[:last], name) {
		p.before.Done()
	}
	return r, err
}

// Promise 2: verdicts that are pruned while the chain is read are not missing from
// its middle.
func TestPromise2PrunedMeanwhile(t *testing.T) {
	s, _, _ := filled(t, nil)
	p := &pruning{Sink: s, t: t, names: []string{repository.VerdictName(1), repository.VerdictName(2), repository.VerdictName(3)}}
	p.before.Add(2)
	repo, err := repository.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	c := readAll(t, repo)
	if len(c.Findings) > 0 {
		t.Errorf("a false alarm: %v", c.Findings)
	}
	if got := counting(c); got != "4 5" {
		t.Errorf("%s count, want 4 5", got)
	}
}
