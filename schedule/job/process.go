package job

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

// A job in a process of its own is one that needs much memory, so that the limit it
// runs into is its own, and not that of the agent.
//
// The parent calls RunProcess, the child ServeProcess. The request, a
// JSON value, and the limit are one line on the child's standard input, which then stays open for as long as
// the parent lives. Progress and the result are JSON lines on its standard output.
//
// It promises:
//
//  1. The child does not outlive its parent: it is told by a signal (Linux) and by
//     the end of its standard input, and ends itself where its work does not.
//  2. When RunProcess's context ends, the child gets SIGTERM, and its work's context ends.
//     It is killed where that takes longer than the grace time.
//  3. Its memory stays below the limit: what it writes to, beside files that it
//     maps. Go's collector works harder from 90 % on; beyond the limit the child
//     dies, and the error says so: "perhaps", where its crash does not tell.
//  4. However it ends, RunProcess says how, in one line of bounded length: what a crash
//     wrote first is in it, its traces are not.
//
// An error of the work arrives as text. What the parent has to tell apart belongs
// into the result. Processes that the child starts have the same limit each.

const (
	// processors leaves the others to the member beside the child; and what
	// compresses and hashes takes memory for each.
	processors = 2
	// processGrace is enough to abort an upload and to remove a scratch folder.
	processGrace = 10 * time.Second
)

// Command is the child's program, which has to call ServeProcess.
type Command struct {
	Path string
	Args []string // without the program's name
	// Grace is how long it may take to end; processGrace where 0.
	Grace time.Duration
	// Logger is told, at level debug, all that a child which crashed wrote: no error
	// has it. Nil for nobody.
	Logger *slog.Logger
}

// order is the line that the child reads.
type order struct {
	Memory  int64           `json:"memory,omitempty"` // what it may take, in bytes; 0 is no limit
	Request json.RawMessage `json:"request"`
}

// RunProcess starts the child, and returns the result of its work once it has ended.
// onProgress may be nil; it is called by one goroutine at a time.
//
// The error names job-memory where the limit was too low or may have been, how the
// child ended where it gave no answer, the work's own as text where that failed, and is
// ctx's cause where ctx ended first. A result that came in spite of that is returned.
func RunProcess(ctx context.Context, c Command, request any, onProgress func(phase string, done, total int64), memory int64) (json.RawMessage, error) {
	line, err := orderLine(request, memory)
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
	cmd.WaitDelay = cmp.Or(c.Grace, processGrace)
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(processors))
	if memory > 0 {
		cmd.Env = append(cmd.Env, "GOMEMLIMIT="+strconv.FormatInt(memory/10*9, 10))
	}
	said := &reader{progress: onProgress}
	wrote := &keeper{}
	cmd.Stdout, cmd.Stderr = said, wrote
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	go func() {
		// One that ended before it read says why in another way. It stays open:
		// its end is the parent's.
		_, _ = stdin.Write(line)
	}()
	ended := cmd.Wait()
	if c.Logger != nil && ended != nil && wrote.String() != "" {
		c.Logger.Debug("what a job's process wrote before it crashed", "stderr", wrote.String())
	}
	return outcome(ctx, said, wrote, memory, ended)
}

func orderLine(request any, memory int64) ([]byte, error) {
	raw, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("write the request of a job: %w", err)
	}
	line, err := json.Marshal(order{memory, raw})
	return append(line, '\n'), err
}

// message is a line of the child's standard output; one of the fields is there.
type message struct {
	Progress *progress       `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Failed   *failure        `json:"failed,omitempty"`
}

type progress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
}

type failure struct {
	Text   string `json:"text"`
	Memory bool   `json:"memory,omitempty"` // for want of memory
}

// longestLine is far more than any result has.
const longestLine = 16 << 20

// reader takes the child's lines apart as they come.
type reader struct {
	progress func(phase string, done, total int64) // may be nil
	rest     []byte
	result   json.RawMessage
	failed   *failure
	err      error // what was no line of ours
}

// Write takes a part of the output. It never fails: the child is not to die of
// what its parent makes of it.
func (r *reader) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for r.err == nil {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			break
		}
		r.take(line)
		r.rest = rest
	}
	if r.err == nil && len(r.rest) > longestLine {
		r.err = fmt.Errorf("it answered a line of more than %d bytes", longestLine)
	}
	if r.err != nil {
		r.rest = nil
	}
	return len(p), nil
}

func (r *reader) take(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		r.err = fmt.Errorf("it answered %q: %w", line[:min(len(line), 100)], err)
		return
	}
	switch {
	case m.Progress != nil && r.progress != nil:
		r.progress(m.Progress.Phase, m.Progress.Done, m.Progress.Total)
	case m.Result != nil:
		r.result = bytes.Clone(m.Result)
	case m.Failed != nil:
		r.failed = m.Failed
	}
}

// between is how often progress is told at most: it is for people, and for the
// other agents that wait for it, who look every few seconds.
const between = 250 * time.Millisecond

// writer writes the child's lines.
type writer struct {
	mu   sync.Mutex
	out  io.Writer
	last progress
	told time.Time
	err  error // of the first line that could not be written
}

func (w *writer) progress(phase string, done, total int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p := progress{phase, done, total}
	if p == w.last || phase == w.last.Phase && done != total && now.Sub(w.told) < between {
		return
	}
	w.last, w.told = p, now
	w.write(message{Progress: &p})
}

func (w *writer) end(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(m)
	return w.err
}

func (w *writer) write(m message) {
	line, err := json.Marshal(m)
	if err == nil && w.err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}

// kept is how many bytes of the child's standard error are kept, and longestKept
// how many of one line.
const (
	kept        = 8 << 10
	longestKept = 1 << 10
)

// keeper keeps the last lines of what a child writes; and, from the first one of a
// crash on, the first lines: what Go writes after these are long traces.
type keeper struct {
	mu      sync.Mutex
	lines   []string
	size    int
	rest    []byte // of a line that has no end yet
	crashed bool
	memory  bool // what it says is that memory could not be had
}

// Write takes a part. It never fails.
func (k *keeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for left := p; len(left) > 0; {
		line, rest, whole := bytes.Cut(left, []byte("\n"))
		left = rest
		if room := longestKept - len(k.rest); room > 0 {
			k.rest = append(k.rest, line[:min(len(line), room)]...)
		}
		if whole {
			k.take(string(k.rest))
			k.rest = k.rest[:0]
		}
	}
	return len(p), nil
}

// crashes begin lines of Go's runtime before a process ends.
var crashes = []string{"fatal error: ", "panic: ", "runtime: ", "runtime/cgo: ", "SIG"}

// shortages are in lines about memory that could not be had.
var shortages = []string{"out of memory", "cannot allocate", "pthread_create failed"}

func (k *keeper) take(line string) {
	if !k.crashed {
		for _, c := range crashes {
			if strings.HasPrefix(line, c) {
				k.crashed, k.lines, k.size = true, nil, 0
			}
		}
	}
	if k.crashed {
		for _, s := range shortages {
			k.memory = k.memory || len(k.lines) < 3 && strings.Contains(line, s)
		}
		if k.size+len(line)+1 > kept { // or the first line would go
			return
		}
	}
	k.lines, k.size = append(k.lines, line), k.size+len(line)+1
	for k.size > kept {
		k.size -= len(k.lines[0]) + 1
		k.lines = k.lines[1:]
	}
}

// outOfMemory reports whether the child crashed for want of memory.
func (k *keeper) outOfMemory() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory
}

// Line is the one line that tells most: the first of a crash, the last of anything
// else; bounded, and without what a terminal or a page would take for its own.
func (k *keeper) Line() string {
	all := k.String()
	k.mu.Lock()
	crashed := k.crashed
	k.mu.Unlock()
	line := all[strings.LastIndexByte(all, '\n')+1:]
	if crashed {
		line, _, _ = strings.Cut(all, "\n")
	}
	return oneLine(line)
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

// String is what is kept, without the end of the last line.
func (k *keeper) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := strings.Join(k.lines, "\n")
	if len(k.rest) > 0 && !k.crashed {
		all += "\n" + string(k.rest)
	}
	return strings.TrimSpace(all)
}

// outcome is what to return of a child that has ended, in whatever way.
func outcome(ctx context.Context, said *reader, wrote *keeper, memory int64, ended error) (json.RawMessage, error) {
	const remedy = "raise it, or run this job on another host"
	switch {
	case said.result != nil && ended == nil:
		return said.result, nil
	case (said.failed != nil && said.failed.Memory || wrote.outOfMemory()) && memory == 0:
		return nil, errors.New("the job's process ran out of memory, without a limit of its own (job-memory): the host has no more")
	case said.failed != nil && said.failed.Memory || wrote.outOfMemory():
		return nil, fmt.Errorf("the job's process needed more memory than the %d MiB that job-memory allows: %s", memory>>20, remedy)
	case ctx.Err() != nil && said.failed != nil:
		return nil, fmt.Errorf("%w: %s", context.Cause(ctx), said.failed.Text)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case said.failed != nil:
		return nil, errors.New(said.failed.Text)
	}
	err := fmt.Errorf("the job's process failed: %w", cmp.Or(said.err, ended, errNoResult))
	if strings.HasSuffix(err.Error(), "signal: killed") {
		err = fmt.Errorf("%w (by the kernel, perhaps, where the host ran out of memory)", err)
	}
	line := wrote.Line()
	if line != "" {
		err = fmt.Errorf("%w; it wrote: %s", err, line)
	}
	// Go's runtime and C's library do not always look whether they got the memory that
	// they asked for; a fault of our own is a panic.
	if memory > 0 && ended != nil && !strings.HasPrefix(line, "panic: ") {
		err = fmt.Errorf("%w; perhaps it needed more memory than the %d MiB that job-memory allows: then %s", err, memory>>20, remedy)
	}
	return nil, err
}

var (
	errNoResult = errors.New("it ended without a result")
	// ErrOrphaned is the cause of the context of a child's work whose parent ended.
	ErrOrphaned = errors.New("the process that asked for this job has ended")
)

// orphanGrace is how long the work of a child whose parent has ended may take to
// end. Then the process ends, whatever it does.
const orphanGrace = processGrace

// Handler is the child's work. Its result is written as JSON. It ends soon after
// ctx: at SIGTERM, at an interrupt, and when the parent has ended. progress may be
// called as often as one likes.
type Handler func(ctx context.Context, request json.RawMessage, progress func(phase string, done, total int64)) (any, error)

// ServeProcess reads the request from stdin, sets this process's limits, and does the
// work once. What the work returns, its error included, is written to stdout; the
// error is about something else: there was no request, or nobody to answer to.
func ServeProcess(ctx context.Context, stdin io.Reader, stdout io.Writer, handle Handler) error {
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
	if o.Memory > 0 {
		if err := limitMemory(o.Memory); err != nil {
			return w.end(message{Failed: failureOf(fmt.Errorf("limit the job's memory to %d bytes (job-memory): %w", o.Memory, err))})
		}
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
