package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// DefaultProcessors leaves the others to the member beside the child; and what
// compresses and hashes takes memory for each.
const DefaultProcessors = 2

// DefaultGrace is enough to abort an upload and to remove a scratch folder.
const DefaultGrace = 10 * time.Second

// Command is the child's program, which has to call Serve.
type Command struct {
	Path string
	Args []string // without the program's name
	// Env is its environment; the parent's own where nil.
	Env []string
	// Stderr gets what the child writes there, as it comes; nil is nobody.
	Stderr io.Writer
	// Grace is how long it may take to end; DefaultGrace where 0.
	Grace time.Duration
	// Logger is told, at level debug, all that a child which crashed wrote: no error
	// has it. Nil for nobody.
	Logger *slog.Logger
}

// Limits are what the child sets itself before it works.
type Limits struct {
	Memory int64  `json:"memory,omitempty"` // bytes; 0 is no limit
	Nice   int    `json:"nice,omitempty"`   // see priority.Set
	IONice string `json:"ionice,omitempty"`
	// Processors is how many it uses at once; DefaultProcessors where 0. It needs
	// more memory for each.
	Processors int `json:"-"`
}

// order is the line that the child reads.
type order struct {
	Limits  Limits          `json:"limits"`
	Request json.RawMessage `json:"request"`
}

// Run starts the child, and returns the result of its work once it has ended.
// onProgress may be nil; it is called by one goroutine at a time.
//
// The error is a *WorkError where the work failed, a *MemoryError where the limit
// was too low, a *CrashError where the child ended in another way, and ctx's cause
// where ctx ended first. A result that came in spite of that is returned.
func Run(ctx context.Context, c Command, request any, onProgress func(phase string, done, total int64), limits Limits) (json.RawMessage, error) {
	line, err := orderLine(request, limits)
	if err != nil {
		return nil, err
	}
	// The signal of the parent's death is that of the thread which started the
	// child: it must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.SysProcAttr = withParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if cmd.WaitDelay = c.Grace; c.Grace == 0 {
		cmd.WaitDelay = DefaultGrace
	}
	if cmd.Env = c.Env; c.Env == nil {
		cmd.Env = os.Environ()
	}
	if limits.Processors == 0 {
		limits.Processors = DefaultProcessors
	}
	cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(limits.Processors))
	if limits.Memory > 0 {
		cmd.Env = append(cmd.Env, "GOMEMLIMIT="+strconv.FormatInt(limits.Memory/10*9, 10))
	}
	said := &reader{progress: onProgress}
	wrote := &keeper{}
	cmd.Stdout, cmd.Stderr = said, io.Writer(wrote)
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(wrote, c.Stderr)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	go func() {
		// One that ended before it read tells why in another way. It stays open:
		// its end is the parent's.
		_, _ = stdin.Write(line)
	}()
	watched := watch(cmd.Process.Pid)
	end := ending{err: cmd.Wait()}
	end.peak = max(watched(), said.data)
	end.died = diedOf(cmd.ProcessState)
	result, err := outcome(ctx, said, wrote, limits, end)
	var memory *MemoryError
	var crash *CrashError
	if c.Logger != nil && wrote.String() != "" && (errors.As(err, &memory) || errors.As(err, &crash)) {
		c.Logger.Debug("what a job's process wrote before it crashed", "stderr", wrote.String())
	}
	return result, err
}

func orderLine(request any, limits Limits) ([]byte, error) {
	raw, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("write the request of a job: %w", err)
	}
	line, err := json.Marshal(order{limits, raw})
	return append(line, '\n'), err
}
