package rescue

import (
	"context"
	"sync"
	"time"
)

// told calls an Events from one goroutine at a time; a nil one hears nothing, and
// answers no question with yes.
type told struct {
	mu     sync.Mutex
	events Events
}

func (t *told) with(f func(Events)) {
	if t.events == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t.events)
}

func (t *told) begin(p Phase, host string) { t.with(func(e Events) { e.Begin(p, host) }) }

func (t *told) end(p Phase, host, detail string, took time.Duration, err error) {
	t.with(func(e Events) { e.End(p, host, detail, took, err) })
}

func (t *told) progress(p Phase, host, what string, done, total int64) {
	t.with(func(e Events) { e.Progress(p, host, what, done, total) })
}

func (t *told) waiting(p Phase, text string) { t.with(func(e Events) { e.Waiting(p, text) }) }
func (t *told) note(text string)             { t.with(func(e Events) { e.Note(text) }) }
func (t *told) warn(text string)             { t.with(func(e Events) { e.Warn(text) }) }

func (t *told) confirm(ctx context.Context, q Question) (yes bool, err error) {
	t.with(func(e Events) { yes, err = e.Confirm(ctx, q) })
	return yes, err
}
