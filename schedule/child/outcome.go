package child

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ending is how a child ended.
type ending struct {
	err  error
	died bool  // of a signal that a want of memory can cause
	peak int64 // the most that was seen of what the limit bounds, in bytes; 0: nothing was
}

// watchEvery is how often is looked at how much memory a child has: a crash does
// not tell.
const watchEvery = 50 * time.Millisecond

// watch looks at the memory of a child until the function that it returns is
// called, which gives the most that was seen.
func watch(pid int) (end func() int64) {
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		for peak := dataOf(pid); ; peak = max(peak, dataOf(pid)) {
			select {
			case <-ticker.C:
			case <-stop:
				most <- peak
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

// diedOf tells whether a process died of a signal that a want of memory can cause.
func diedOf(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGSEGV || status.Signal() == syscall.SIGABRT || status.Signal() == syscall.SIGBUS)
}

// arena is how much memory Go takes at a time.
const arena = 64 << 20

// near tells whether the child had so much of what it may that a want of more is
// the likely reason of a crash: no room for what Go takes at a time, or half of the
// limit, since Go keeps below 90 % of it as long as it can.
func (e ending) near(limit int64) bool {
	return limit > 0 && e.peak > 0 && (e.peak >= limit/2 || e.peak+arena > limit)
}

// outcome is what to return of a child that has ended.
func outcome(ctx context.Context, said *reader, wrote *keeper, limits Limits, end ending) (json.RawMessage, error) {
	switch {
	case said.result != nil && end.err == nil:
		return said.result, nil
	case said.failed != nil && said.failed.Memory || wrote.outOfMemory():
		return nil, &MemoryError{Limit: limits.Memory, Stderr: wrote.String()}
	case ctx.Err() != nil && said.failed != nil:
		return nil, fmt.Errorf("%w: %s", context.Cause(ctx), said.failed.Text)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case said.failed != nil:
		return nil, &WorkError{said.failed.Text}
	case end.err != nil && (end.died || wrote.looksLikeMemory()) && end.near(limits.Memory):
		return nil, &MemoryError{Limit: limits.Memory, Stderr: wrote.String(), Crash: cmp.Or(wrote.Line(), end.err.Error())}
	}
	return nil, &CrashError{Err: cmp.Or(said.err, end.err, errNoResult), Line: wrote.Line(), Stderr: wrote.String()}
}
