package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/requorum/requorum/snapshot"
)

const (
	// helloTimeout is for the host process's first line: a login over slow links.
	helloTimeout = 20 * time.Second
	helloSize    = 64 << 10
	// endTimeout is how long a command gets to end by itself once its input has ended.
	endTimeout = 2 * time.Second
)

// RemoteOptions say whom to reach, and how.
type RemoteOptions struct {
	Member string // that the host has, or is to get
	// Command is run, and has to be a conversation with `requorum host` on the host. With Here
	// the host is this process, and nothing is run.
	Command []string
	Here    *Options
	Config  *Config // what the host is given
	Version string  // of the coordinator, and so of the host
	// Fetch answers what the host needs of other hosts.
	Fetch func(ctx context.Context, a FetchArguments, w io.Writer) (*Sent, error)
}

// Remote is the coordinator's end of a conversation with `requorum host`: it starts that on
// the host, and starts it again at the next request where the conversation was cut. Nothing
// is asked twice by itself: after a cut the caller repeats the action, which its run may
// always do. Its methods may be called by several goroutines.
type Remote struct {
	options RemoteOptions

	starting chan struct{} // has room for who starts the command
	mu       sync.Mutex
	line     *line // nil where there is none
}

// line is a command that runs, or a host in this process.
type line struct {
	conn   *conversation
	epoch  uint64
	cmd    *exec.Cmd // nil for a host in this process
	in     io.WriteCloser
	wait   func() error // for its end
	exited atomic.Bool
	stderr *tail
	lost   chan struct{} // closed when the conversation has ended
	why    error         // of that
}

// NewRemote makes a host; nothing is started before the first request. The caller calls
// Close.
func NewRemote(o RemoteOptions) *Remote { return &Remote{options: o, starting: make(chan struct{}, 1)} }

// Close ends the conversation. What is under way on the host is still done there.
func (h *Remote) Close() {
	h.mu.Lock()
	l := h.line
	h.line = nil
	h.mu.Unlock()
	if l != nil {
		l.end()
	}
}

// LineError says that a host could not be talked with, or not any more.
type LineError struct {
	Member string
	// Answered says that something answered, so that the host is not gone: it is another
	// version, or no requorum at all, or does not let us in.
	Answered bool
	Err      error
}

func (e *LineError) Error() string { return fmt.Sprintf("host of member %s: %v", e.Member, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// Answered reports whether an error is of somebody who answered, whom one cannot work with. Such a
// host is not gone.
func Answered(err error) bool {
	var refused *RefusedError
	var line *LineError
	return errors.As(err, &refused) || errors.As(err, &line) && line.Answered
}

// connect gives the conversation, which it begins where there is none.
func (h *Remote) connect(ctx context.Context) (*line, error) {
	select {
	case h.starting <- struct{}{}:
		defer func() { <-h.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	l := h.line
	h.mu.Unlock()
	if l != nil {
		select {
		case <-l.lost:
		default:
			return l, nil
		}
	}
	l, err := h.start(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line = l
	return l, nil
}

// start runs the command, compares versions, and says what the host must know.
func (h *Remote) start(ctx context.Context) (_ *line, err error) {
	o := h.options
	failed := func(answered bool, err error) error {
		return &LineError{Member: o.Member, Answered: answered, Err: err}
	}
	l := &line{stderr: &tail{}, lost: make(chan struct{})}
	out := l.serve(o.Here)
	if o.Here == nil {
		if out, err = l.run(o.Command); err != nil {
			return nil, failed(false, fmt.Errorf("%s: %w", strings.Join(o.Command, " "), err))
		}
	}
	l.conn = newConversation(out, l.in, func(ctx context.Context, r *incoming) (any, error) {
		var a FetchArguments
		if r.Verb != verbFetch || o.Fetch == nil {
			return nil, fmt.Errorf("%q is nothing that a coordinator does", r.Verb)
		}
		if err := r.Decode(&a); err != nil {
			return nil, err
		}
		return o.Fetch(ctx, a, r.Data)
	})
	hello, err := l.hello(ctx)
	if err != nil {
		answered, why := l.ended(err)
		return nil, failed(answered, fmt.Errorf("%s: %w", strings.Join(o.Command, " "), why))
	}
	if hello.Requorum != o.Version {
		l.end()
		return nil, failed(true, fmt.Errorf("%s: requorum there is %s, and this one is %s: install the same version on both", strings.Join(o.Command, " "), hello.Requorum, o.Version))
	}
	go func() {
		err := l.conn.Serve(context.Background())
		_, l.why = l.ended(err)
		close(l.lost)
	}()
	watched, stop := context.WithCancel(context.Background())
	go l.conn.Watch(watched, func(error) { l.kill() })
	go func() {
		<-l.lost
		stop()
	}()
	var c configured
	if err := l.conn.Call(ctx, Header{}, verbConfigure, o.Config, &c, nil); err != nil {
		l.end()
		return nil, failed(true, l.because(err))
	}
	l.epoch = c.Epoch + 1
	return l, nil
}

// run starts a command, and returns its output.
func (l *line) run(command []string) (out io.Reader, err error) {
	// Without a context: it ends when its input does.
	l.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // see above
	l.cmd.Stderr = l.stderr
	// A process group of its own: an interrupt of the terminal is the coordinator's.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l.cmd.WaitDelay = endTimeout
	l.wait = l.cmd.Wait
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if out, err = l.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return out, l.cmd.Start()
}

// serve is a host in this process, and returns its output; nil without options.
func (l *line) serve(o *Options) io.Reader {
	if o == nil {
		return nil
	}
	in, toHost := io.Pipe()
	out, fromHost := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Serve(context.Background(), in, fromHost, *o)
		_, _ = in.Close(), fromHost.Close() // they never fail
		ended <- err
	}()
	l.in, l.wait = toHost, func() error { return <-ended }
	return out
}

// hello reads the first line.
func (l *line) hello(ctx context.Context) (*hello, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, helloTimeout, fmt.Errorf("it said nothing within %s", helloTimeout))
	defer cancel()
	type first struct {
		line []byte
		err  error
	}
	read := make(chan first, 1)
	go func() {
		line, err := readLine(l.conn.in, helloSize)
		read <- first{line, err}
	}()
	select {
	case <-ctx.Done():
		l.kill()
		<-read
		return nil, context.Cause(ctx)
	case f := <-read:
		if errors.Is(f.err, io.EOF) {
			return nil, errEnded
		}
		if f.err != nil {
			return nil, &strangeError{f.err}
		}
		var hello hello
		if err := json.Unmarshal(f.line, &hello); err != nil || hello.Requorum == "" {
			return nil, &strangeError{fmt.Errorf("it begins with %s, which is no line of `requorum host`: nothing else may print there, such as a profile of the shell", shown(f.line))}
		}
		return &hello, nil
	}
}

// strangeError says that something else answered.
type strangeError struct{ err error }

func (e *strangeError) Error() string { return e.err.Error() }
func (e *strangeError) Unwrap() error { return e.err }

// ended waits for the command's end, and says why there was one: by what it printed, as
// ssh does. answered reports whether somebody was there.
func (l *line) ended(why error) (answered bool, _ error) {
	l.end()
	err := l.wait()
	l.exited.Store(true)
	var strange *strangeError
	answered = errors.As(why, &strange)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		text := l.stderr.String()
		switch exit.ExitCode() {
		case 2: // its own, of another version that knows no such command
			answered = answered || strings.HasPrefix(text, "requorum: ")
		case 126, 127: // of the shell there
			answered = true
		case 255: // ssh's own
			answered = answered || slices.ContainsFunc([]string{"Permission denied", "Host key verification failed", "Too many authentication failures"}, func(s string) bool { return strings.Contains(text, s) })
		}
		why = fmt.Errorf("%w (%w)", why, exit)
	}
	if text := l.stderr.String(); text != "" {
		why = fmt.Errorf("%w: %s", why, text)
	}
	return answered, why
}

// end ends the command's input, and the command where that does not do.
func (l *line) end() {
	_ = l.in.Close() // it may have been
	time.AfterFunc(endTimeout, l.kill)
}

// kill reaches what the command has started, too.
func (l *line) kill() {
	if l.cmd != nil && !l.exited.Load() {
		_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	}
}

// because is why an answer did not come.
func (l *line) because(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return err
	}
	select {
	case <-l.lost:
		return l.why
	case <-time.After(endTimeout):
		return err
	}
}

// tail keeps the last of what is printed.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

// String is one line, without what a terminal would obey.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.Join(strings.FieldsFunc(string(t.text), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
}

// Client asks a host in the name of a run.
type Client struct {
	host        *Remote
	run         string
	coordinator string
}

// As gives a client for a run.
func (h *Remote) As(run string) *Client { return &Client{host: h, run: run} }

// By gives a client that says which coordinator it is of.
func (c *Client) By(coordinator string) *Client { return &Client{c.host, c.run, coordinator} }

// ask asks for something, and writes what is streamed before the answer to data, which may
// be nil.
func ask[T any](ctx context.Context, c *Client, verb verb, arguments any, data io.Writer) (*T, error) {
	l, err := c.host.connect(ctx)
	if err != nil {
		return nil, err
	}
	var answer T
	member := c.host.options.Member
	header := Header{Member: member, Run: c.run, Epoch: l.epoch, Coordinator: c.coordinator}
	err = l.conn.Call(ctx, header, verb, arguments, &answer, data)
	var refused *RefusedError
	var notTaken *notTakenError
	switch {
	case err == nil:
		return &answer, nil
	case errors.As(err, &refused), errors.As(err, &notTaken):
		return nil, fmt.Errorf("member %s: %w", member, err)
	case ctx.Err() != nil:
		return nil, err
	}
	return nil, &LineError{Member: member, Err: l.because(err)}
}

func (c *Client) act(ctx context.Context, verb verb) (*Done, error) {
	return ask[Done](ctx, c, verb, nil, nil)
}

// Member asks for the state.
func (c *Client) Member(ctx context.Context) (*Member, error) {
	return ask[Member](ctx, c, verbObserve, nil, nil)
}

// Decide stores a decision of the run.
func (c *Client) Decide(ctx context.Context, d Decision) (*Done, error) {
	return ask[Done](ctx, c, verbDecide, d, nil)
}

// Stop stops the member, and fails where that is not proved.
func (c *Client) Stop(ctx context.Context) (*Done, error) { return c.act(ctx, verbStop) }

// Start starts the member, which has to have data to start from, and not of a cluster that has ended.
func (c *Client) Start(ctx context.Context, ended []Ended) (*Done, error) {
	return ask[Done](ctx, c, verbStart, startArguments{ended}, nil)
}

// SetAside sets the stopped member's data aside.
func (c *Client) SetAside(ctx context.Context) (*Done, error) { return c.act(ctx, verbSetAside) }

// Undo puts back what this run set aside.
func (c *Client) Undo(ctx context.Context) (*Done, error) { return c.act(ctx, verbUndo) }

// Quiesce stops the host's clients, in their order, and fails where that is not proved;
// those that are to be restarted only are left alone. With kill it kills those that do not
// end soon, if their supervisor can.
func (c *Client) Quiesce(ctx context.Context, kill bool) (*Done, error) {
	return ask[Done](ctx, c, verbQuiesce, quiesceArguments{Kill: kill}, nil)
}

// Resume starts the clients in the reverse of the order in which Quiesce stops them, then
// restarts those that are to be restarted: all of them, or those that ran before the run
// quiesced them. Done.Warnings names the others. The error names each that does not run.
func (c *Client) Resume(ctx context.Context, all bool) (*Done, error) {
	return ask[Done](ctx, c, verbResume, resumeArguments{All: all}, nil)
}

// Rebuild builds the member's directories as a plan says: from what the run has set aside on
// this host, or from an image. It must have set the old data aside here. It may be called again after
// anything: what came already is not copied or built again.
func (c *Client) Rebuild(ctx context.Context, plan RebuildPlan) (*Rebuilt, error) {
	return ask[Rebuilt](ctx, c, verbRebuild, plan, nil)
}

// Hash hashes the stopped member's database, or that which a run set aside: see sources.Hash.
func (c *Client) Hash(ctx context.Context, run string, revision int64) (snapshot.HashKV, error) {
	hash, err := ask[snapshot.HashKV](ctx, c, verbHash, hashArguments{run, revision}, nil)
	if err != nil {
		return snapshot.HashKV{}, err
	}
	return *hash, nil
}

// Files lists the files of the stopped member; with a run, those that it set aside.
func (c *Client) Files(ctx context.Context, run string) ([]File, error) {
	sent, err := c.Data(ctx, DataArguments{Run: run}, nil)
	if err != nil {
		return nil, err
	}
	return sent.Files, nil
}

// Data passes on what is asked for as it is: whoever asked compares the sum.
func (c *Client) Data(ctx context.Context, a DataArguments, w io.Writer) (*Sent, error) {
	return ask[Sent](ctx, c, verbData, a, w)
}

// Survey writes the summary of the stopped member to w; with a run, that of what
// the run set aside. It returns an error unless all of it came and its SHA-256 is
// the one that the sender reckoned, and it has no more than summaryLimit bytes; w may
// then have got some.
func (c *Client) Survey(ctx context.Context, w io.Writer, run string) error {
	sum := newSummedWriter(w, summaryLimit)
	sent, err := ask[Sent](ctx, c, verbSurvey, run, sum)
	if err == nil {
		err = sum.Check(sent)
	}
	if err != nil {
		return fmt.Errorf("the survey of member %s: %w", c.host.options.Member, err)
	}
	return nil
}

// summaryLimit is more than a summary can have: some 20 bytes for each entry of a log that
// has a hundred million. A variable for tests.
var summaryLimit int64 = 4 << 30
