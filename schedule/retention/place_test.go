package retention

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// place is a sink in memory with a clock of its own, locks, and a power cut.
type place struct {
	*sinktest.Memory
	mu     sync.Mutex
	now    time.Time
	times  map[string]time.Time
	locked map[string]time.Time
	// cutAt is the call at which the power goes, counted down; 0: never.
	cutAt int
	dead  bool
	calls int
	// before is called before an object is deleted, one call after the other.
	before func(name string)
	hook   sync.Mutex
}

var errPower = errors.New("power cut")

func newPlace(now time.Time) *place {
	return &place{Memory: sinktest.NewMemory(), now: now, times: map[string]time.Time{}, locked: map[string]time.Time{}}
}

// clone is the same place with the power on.
func (p *place) clone(t testing.TB) *place {
	t.Helper()
	c := newPlace(p.now)
	for o, err := range p.Memory.List(t.Context(), "", "") {
		require.NoError(t, err)
		data, err := sinks.Get(t.Context(), p.Memory, o.Name, 1<<20)
		if err == nil {
			_, err = sinks.Put(t.Context(), c.Memory, o.Name, data, sinks.CreateOptions{})
		}
		require.NoError(t, err)
	}
	c.times, c.locked = maps.Clone(p.times), maps.Clone(p.locked)
	return c
}

func (p *place) call() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.cutAt > 0 {
		if p.cutAt--; p.cutAt == 0 {
			p.dead = true
		}
	}
	if p.dead {
		return errPower
	}
	return nil
}

func (p *place) see(o sinks.Object) sinks.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.ModTime = p.times[o.Name]
	return o
}

func (p *place) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	if err := p.call(); err != nil {
		return nil, err
	}
	w, err := p.Memory.Create(ctx, name, opts)
	return &placeWriter{w, p, name}, err
}

type placeWriter struct {
	sinks.Writer
	place *place
	name  string
}

func (w *placeWriter) Commit(ctx context.Context) (sinks.Object, error) {
	if err := w.place.call(); err != nil {
		return sinks.Object{}, err
	}
	o, err := w.Writer.Commit(ctx)
	if err == nil {
		w.place.mu.Lock()
		w.place.times[w.name] = w.place.now
		w.place.mu.Unlock()
	}
	return w.place.see(o), err
}

func (p *place) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := p.call(); err != nil {
		return sinks.Object{}, err
	}
	o, err := p.Memory.Stat(ctx, name)
	o = p.see(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	o.LockedUntil = p.locked[name]
	return o, err
}

func (p *place) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		if err := p.call(); err != nil {
			yield(sinks.Object{}, err)
			return
		}
		for o, err := range p.Memory.List(ctx, prefix, after) {
			if !yield(p.see(o), err) {
				return
			}
		}
	}
}

func (p *place) Delete(ctx context.Context, name string) error {
	if err := p.call(); err != nil {
		return err
	}
	p.mu.Lock()
	before, locked := p.before, p.locked[name].After(p.now)
	p.mu.Unlock()
	switch {
	case locked:
		return fmt.Errorf("delete %s: %w", name, sinks.ErrLocked)
	case before != nil:
		p.hook.Lock()
		before(name)
		p.hook.Unlock()
	}
	return p.Memory.Delete(ctx, name)
}
