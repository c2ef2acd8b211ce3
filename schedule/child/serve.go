package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/requorum/requorum/schedule/priority"
)

// orphanGrace is how long the work of a child whose parent has ended may take to
// end. Then the process ends, whatever it does.
const orphanGrace = DefaultGrace

// Handler is the child's work. Its result is written as JSON. It ends soon after
// ctx: at SIGTERM, at an interrupt, and when the parent has ended. progress may be
// called as often as one likes.
type Handler func(ctx context.Context, request json.RawMessage, progress func(phase string, done, total int64)) (any, error)

// Serve reads the request from stdin, sets this process's limits, and does the
// work once. What the work returns, its error included, is written to stdout; the
// error is about something else: there was no request, or nobody to answer to.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer, handle Handler) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the request of a job: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("read the request of a job: %w", err)
	}
	w := &writer{out: stdout}
	if data := dataOf(os.Getpid()); o.Limits.Memory > 0 && data > 0 {
		w.data(data)
	}
	if err := o.Limits.set(); err != nil {
		return w.end(message{Failed: failureOf(err)})
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // ends with the parent
		cancel(ErrOrphaned)
		time.AfterFunc(orphanGrace, func() { os.Exit(1) })
	}()
	result, err := handle(ctx, o.Request, w.progress)
	if err != nil {
		return w.end(message{Failed: failureOf(err)})
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return w.end(message{Failed: failureOf(fmt.Errorf("write the result of a job: %w", err))})
	}
	return w.end(message{Result: raw})
}

func failureOf(err error) *failure {
	return &failure{Text: err.Error(), Memory: errors.Is(err, syscall.ENOMEM)}
}

// set gives this process its limits.
func (l Limits) set() error {
	if err := priority.Set(l.Nice, l.IONice); err != nil {
		return fmt.Errorf("set the job's priority: %w", err)
	}
	if l.Memory <= 0 {
		return nil
	}
	if err := limitMemory(l.Memory); err != nil {
		return fmt.Errorf("limit the job's memory to %d bytes (job-memory): %w", l.Memory, err)
	}
	return nil
}
