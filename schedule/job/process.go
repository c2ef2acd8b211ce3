package job

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// A job that needs much memory is a command in a process of its own, so that the limit
// it runs into is its own, and not that of the agent.
//
// It promises:
//
//  1. The command does not outlive the agent: it gets SIGTERM then (on Linux), at which
//     it removes its scratch directory and ends.
//  2. When RunCommand's context ends, the command gets SIGTERM. It is killed if it takes
//     longer than the grace time to end.
//  3. Its memory stays below the limit (on Linux): what it writes to, beside files that
//     it maps. Go's collector works harder from 90 % on; beyond the limit the command
//     dies, and the error says so: "perhaps" if its crash does not show it.
//  4. However it ends, RunCommand says how, in one line of bounded length: the first line
//     of a crash is in it, its traces are not.
//
// Processes that the command starts have the same limit each.

const (
	// processors leaves the others to the member beside the command; and what
	// compresses and hashes takes memory for each.
	processors = 2
	// processGrace is enough to abort an upload and to remove a scratch folder.
	processGrace = 10 * time.Second
)

// Command is a command of this program.
type Command struct {
	Path string
	Args []string // without the program's name
	// Memory is what it may take, in bytes; 0 is no limit.
	Memory int64
	// Logger gets, at level debug, all that a command which failed wrote: no error
	// has it. Nil for nobody.
	Logger *slog.Logger

	grace time.Duration // how long it may take to end; processGrace where 0
}

// RunCommand runs the command to its end, and returns what it wrote to standard output.
//
// The error is nil if the command ended with status 0. It names job-memory if the limit
// was too low or may have been, has the command's last words, and is ctx's cause if ctx
// ended first. Several commands give a status other than 0 with a whole report, so the
// output is returned in any case.
func RunCommand(ctx context.Context, c Command) ([]byte, error) {
	// The signal of the parent's death is that of the thread which started the
	// child: it must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.SysProcAttr = withParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = cmp.Or(c.grace, processGrace)
	// What sets flags of a command is of no effect on the agent's jobs.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "REQUORUM_") }),
		"GOMAXPROCS="+strconv.Itoa(processors))
	if c.Memory > 0 {
		cmd.Env = append(cmd.Env, "GOMEMLIMIT="+strconv.FormatInt(c.Memory/10*9, 10))
	}
	out, wrote := &bytes.Buffer{}, &keeper{}
	cmd.Stdout, cmd.Stderr = out, wrote
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	if c.Memory > 0 {
		if err := limitMemory(cmd.Process.Pid, c.Memory); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
			return nil, fmt.Errorf("limit the memory of a job to %d bytes (job-memory): %w", c.Memory, err)
		}
	}
	ended := cmd.Wait()
	if c.Logger != nil && ended != nil && len(wrote.text) > 0 {
		c.Logger.Debug("stderr of a job that failed", "stderr", string(wrote.text))
	}
	return out.Bytes(), wrote.outcome(ctx, cmd.ProcessState, c.Memory, ended)
}

// kept is how many bytes of standard error are kept: a command writes hardly
// anything before it crashes, and what Go writes then begins with the reason.
const kept = 64 << 10

// keeper keeps the beginning of what a command writes.
type keeper struct{ text []byte }

// Write takes a part. It never fails.
func (k *keeper) Write(p []byte) (int, error) {
	k.text = append(k.text, p[:min(len(p), kept-len(k.text))]...)
	return len(p), nil
}

// crashes begin lines of Go's runtime before a process ends.
var crashes = []string{"fatal error: ", "panic: ", "runtime: ", "runtime/cgo: ", "SIG"}

// shortages are in lines about memory that could not be had.
var shortages = []string{"out of memory", "cannot allocate", "pthread_create failed"}

// crash is what Go's runtime wrote before the process ended, in lines; none where it
// wrote nothing.
func (k *keeper) crash() []string {
	lines := strings.Split(string(k.text), "\n")
	begin := slices.IndexFunc(lines, func(line string) bool {
		return slices.ContainsFunc(crashes, func(c string) bool { return strings.HasPrefix(line, c) })
	})
	if begin < 0 {
		return nil
	}
	return lines[begin:]
}

// outOfMemory reports whether the command ended for want of memory: it crashed, or
// gives the system's own error as its reason.
func (k *keeper) outOfMemory() bool {
	crash := k.crash()
	if crash == nil {
		crash = []string{k.line()}
	}
	return slices.ContainsFunc(crash[:min(len(crash), 3)], func(line string) bool {
		return slices.ContainsFunc(shortages, func(s string) bool { return strings.Contains(line, s) })
	})
}

// commandPrefix begins the reason why a command of this program failed.
const commandPrefix = "requorum: "

// line is the one line that says most: the first of a crash, why the command failed, or
// else the last line; bounded, and without what a terminal or a page would take for its
// own.
func (k *keeper) line() string {
	if crash := k.crash(); crash != nil {
		return oneLine(crash[0])
	}
	text := "\n" + strings.TrimSpace(string(k.text))
	if at := strings.LastIndex(text, "\n"+commandPrefix); at >= 0 {
		return oneLine(text[at+len("\n"+commandPrefix):])
	}
	return oneLine(text[strings.LastIndexByte(text, '\n')+1:])
}

// longestLineOf is how much of a line an error has.
const longestLineOf = 200

func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(s, "?")))
	if len(s) > longestLineOf {
		s = strings.ToValidUTF8(s[:longestLineOf], "") + "…"
	}
	return s
}

// outcome says how a command ended.
func (k *keeper) outcome(ctx context.Context, state *os.ProcessState, memory int64, ended error) error {
	const remedy = "raise it, or run this job on another host"
	line := k.line()
	switch {
	case ended == nil:
		return nil
	case k.outOfMemory():
		return fmt.Errorf("the job's process needed more memory than the %d MiB that job-memory allows: %s", memory>>20, remedy)
	case ctx.Err() != nil && line != "":
		return fmt.Errorf("%w: %s", context.Cause(ctx), line)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case state.Exited() && k.crash() == nil && line != "":
		return errors.New(line) // it says itself why it failed
	}
	err := fmt.Errorf("the job's process failed: %w", ended)
	if state.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL { //nolint:forcetypeassert // so it is on all systems of signals
		err = fmt.Errorf("%w (by the kernel, perhaps, where the host ran out of memory)", err)
	}
	if line != "" {
		err = fmt.Errorf("%w; it wrote: %s", err, line)
	}
	// Go's runtime and C's library do not always look whether they got the memory that
	// they asked for; a fault of our own is a panic.
	if memory > 0 && !strings.HasPrefix(line, "panic: ") {
		err = fmt.Errorf("%w; perhaps it needed more memory than the %d MiB that job-memory allows: then %s", err, memory>>20, remedy)
	}
	return err
}
