package job

import (
	"bufio"
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
	"slices"
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
//  1. The child does not outlive its parent: it gets a signal (Linux) and
//     the end of its standard input, and ends itself where its work does not.
//  2. When RunProcess's context ends, the child gets SIGTERM, and its work's context ends.
//     It is killed where that takes longer than the grace time.
//  3. Its memory stays below the limit: what it writes to, beside files that it
//     maps. Go's collector works harder from 90 % on; beyond the limit the child
//     dies, and the error says so: "perhaps", where its crash does not show it.
//  4. However it ends, RunProcess says how, in one line of bounded length: what a crash
//     wrote first is in it, its traces are not.
//
// An error of the work arrives as text. What the parent has to distinguish belongs
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
	// Logger gets, at level debug, all that a child which crashed wrote: no error
	// has it. Nil for nobody.
	Logger *slog.Logger

	grace time.Duration // how long it may take to end; processGrace where 0
}

// order is the line that the child reads.
type order struct {
	Memory  int64           `json:"memory,omitempty"` // what it may take, in bytes; 0 is no limit
	Request json.RawMessage `json:"request"`
}

// RunProcess starts the child, and reads the result of its work into result once it
// has ended. onProgress may be nil; it is called by one goroutine at a time.
//
// The error names job-memory where the limit was too low or may have been, how the
// child ended where it gave no answer, the work's own as text where that failed, and is
// ctx's cause where ctx ended first. A result that came in spite of that is taken.
func RunProcess(ctx context.Context, c Command, request, result any, onProgress func(phase string, done, total int64), memory int64) error {
	raw, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("write the request of a job: %w", err)
	}
	// The signal of the parent's death is that of the thread which started the
	// child: it must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.SysProcAttr = withParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = cmp.Or(c.grace, processGrace)
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(processors))
	if memory > 0 {
		cmd.Env = append(cmd.Env, "GOMEMLIMIT="+strconv.FormatInt(memory/10*9, 10))
	}
	stdout, writeEnd := io.Pipe()
	wrote := &keeper{}
	cmd.Stdout, cmd.Stderr = writeEnd, wrote
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.Path, err)
	}
	go func() {
		// One that ended before it read says why in another way. It stays open:
		// its end is the parent's.
		_ = json.NewEncoder(stdin).Encode(order{memory, raw})
	}()
	answered := make(chan childAnswer, 1)
	go func() { answered <- readAnswer(stdout, onProgress) }()
	ended := cmd.Wait()
	_ = writeEnd.Close()
	if c.Logger != nil && ended != nil && len(wrote.text) > 0 {
		c.Logger.Debug("what a job's process wrote before it crashed", "stderr", string(wrote.text))
	}
	raw, err = outcome(ctx, <-answered, wrote, memory, ended)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("the job's process answered %q: %w", raw[:min(len(raw), 100)], err)
	}
	return nil
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

// childAnswer is the last message of a child, and what was none of its messages.
type childAnswer struct {
	message
	err error
}

// readAnswer reads the child's lines as they come, to the end of its output
// whatever they say: the child is not to die of what its parent makes of it.
func readAnswer(out io.Reader, onProgress func(phase string, done, total int64)) (a childAnswer) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, longestLine)
	for a.err == nil && lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			a.err = fmt.Errorf("it answered %q: %w", lines.Bytes()[:min(len(lines.Bytes()), 100)], err)
		} else if m.Progress == nil {
			a.message = m
		} else if onProgress != nil {
			onProgress(m.Progress.Phase, m.Progress.Done, m.Progress.Total)
		}
	}
	a.err = cmp.Or(a.err, lines.Err())
	_, _ = io.Copy(io.Discard, out)
	return a
}

// between is how often progress is reported at most: it is for people.
const between = 250 * time.Millisecond

// writer writes the child's lines.
type writer struct {
	mu   sync.Mutex
	out  io.Writer
	last progress
	sent time.Time
}

func (w *writer) progress(phase string, done, total int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p := progress{phase, done, total}
	if p == w.last || phase == w.last.Phase && done != total && now.Sub(w.sent) < between {
		return
	}
	w.last, w.sent = p, now
	_ = json.NewEncoder(w.out).Encode(message{Progress: &p}) // where nobody reads, end says so
}

func (w *writer) end(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return json.NewEncoder(w.out).Encode(m)
}

// kept is how many bytes of the child's standard error are kept: a child writes hardly
// anything before it crashes, and what Go writes then begins with the reason.
const kept = 64 << 10

// keeper keeps the beginning of what a child writes.
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

// outOfMemory reports whether the child crashed for want of memory.
func (k *keeper) outOfMemory() bool {
	crash := k.crash()
	return slices.ContainsFunc(crash[:min(len(crash), 3)], func(line string) bool {
		return slices.ContainsFunc(shortages, func(s string) bool { return strings.Contains(line, s) })
	})
}

// line is the one line that says most: the first of a crash, the last of anything
// else; bounded, and without what a terminal or a page would take for its own.
func (k *keeper) line() string {
	if crash := k.crash(); crash != nil {
		return oneLine(crash[0])
	}
	text := strings.TrimSpace(string(k.text))
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

// outcome is what to return of a child that has ended, in whatever way.
func outcome(ctx context.Context, said childAnswer, wrote *keeper, memory int64, ended error) (json.RawMessage, error) {
	const remedy = "raise it, or run this job on another host"
	switch {
	case said.err == nil && said.Result != nil && ended == nil:
		return said.Result, nil
	case said.Failed != nil && said.Failed.Memory || wrote.outOfMemory():
		return nil, fmt.Errorf("the job's process needed more memory than the %d MiB that job-memory allows: %s", memory>>20, remedy)
	case ctx.Err() != nil && said.Failed != nil:
		return nil, fmt.Errorf("%w: %s", context.Cause(ctx), said.Failed.Text)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case said.Failed != nil:
		return nil, errors.New(said.Failed.Text)
	}
	err := fmt.Errorf("the job's process failed: %w", cmp.Or(ended, said.err, errNoResult))
	if strings.HasSuffix(err.Error(), "signal: killed") {
		err = fmt.Errorf("%w (by the kernel, perhaps, where the host ran out of memory)", err)
	}
	line := wrote.line()
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
	// errOrphaned is the cause of the context of a child's work whose parent ended.
	errOrphaned = errors.New("the process that asked for this job has ended")
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
	var o order
	if err := json.NewDecoder(stdin).Decode(&o); err != nil {
		return fmt.Errorf("read the request of a job: %w", err)
	}
	w := &writer{out: stdout}
	if o.Memory > 0 {
		if err := limitMemory(o.Memory); err != nil {
			return w.end(message{Failed: failureOf(fmt.Errorf("limit the job's memory to %d bytes (job-memory): %w", o.Memory, err))})
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // ends with the parent
		cancel(errOrphaned)
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
