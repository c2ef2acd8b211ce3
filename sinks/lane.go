package sinks

import (
	"context"
	"errors"
	"fmt"
)

// lane is one target of a FanOut. Its goroutine alone touches the writer.
type lane struct {
	target   Target
	writer   Writer // nil where Create failed
	queue    chan *chunk
	done     chan struct{} // closed when the fields below are final
	object   Object
	err      error
	abortErr error
}

// run writes what is queued and commits when the queue ends. A lane that has
// failed still takes its chunks, since the other lanes wait for them to become
// free; only the end of the context, which ends all lanes, stops it.
func (l *lane) run(f *FanOut) {
	defer close(l.done)
	for {
		select {
		case c, more := <-l.queue:
			if !more {
				l.finish(f)
				return
			}
			if l.err == nil {
				if _, err := l.writer.Write(c.data); err != nil {
					l.fail(f, err)
				}
			}
			if c.users.Add(-1) == 0 {
				c.data = c.data[:0]
				f.free <- c
			}
		case <-f.ctx.Done():
			if l.err == nil {
				l.fail(f, context.Cause(f.ctx))
			}
			return
		}
	}
}

func (l *lane) finish(f *FanOut) {
	if l.err != nil {
		return
	}
	object, err := l.writer.Commit(f.commit)
	if err != nil {
		l.fail(f, err)
		return
	}
	l.object = object
}

// fail aborts the target. An error of Abort is for FanOut.Abort to return; it
// is also shown beside the one that led to it, which Commit returns.
func (l *lane) fail(f *FanOut, err error) {
	if cause := context.Cause(f.ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // why it was cancelled
	}
	l.abortErr = l.writer.Abort()
	l.err = err
	if l.abortErr != nil {
		l.err = fmt.Errorf("%w; and aborting it failed: %w", err, l.abortErr)
	}
	if f.alive.Add(-1) == 0 {
		close(f.dead)
	}
}
