package serve

import (
	"errors"
	"fmt"

	"github.com/requorum/requorum/store"

	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/requorum/requorum/verify/report"
)

// process is the one that runs the members.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer // its end shows the process that the drill is over
	answers *json.Decoder
	stderr  tail

	once   sync.Once
	gone   chan struct{} // closed when it has ended: then the following are set
	err    error         // how it ended
	failed string        // what it said of a member that ended by itself
}

// start starts the members and waits until they are ready.
func (d *drill) start(ctx context.Context) error {
	done := d.phase(PhaseBoot)
	d.booting = time.Now()
	p, err := launch(d.options.Command, d.scratch.Lock())
	if err != nil {
		return fmt.Errorf("start the members: %w", err)
	}
	d.process = p
	o := order{BootTimeout: d.options.BootTimeout}
	for _, m := range d.plan.Members {
		o.Members = append(o.Members, store.MemberConfig{
			Name: m.Name, DataDir: m.DataDir, ListenPeerURLs: m.PeerURLs, ListenClientURLs: d.clients[m.Name],
			InitialCluster: d.plan.InitialCluster(), InitialClusterState: "existing", Token: d.plan.ClusterToken,
			QuotaBytes: -1, // whatever the image's size, writes are to go through
			Settings:   store.Settings{TLS: d.tls},
		})
	}
	// The process minds the time too, but not while etcd opens the database.
	starting, cancel := context.WithTimeout(ctx, d.options.BootTimeout+burial)
	defer cancel()
	first, err := p.order(starting, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && starting.Err() != nil:
		return fmt.Errorf("the members had not opened their databases after %s: try again where there is less to do, or allow more time", d.options.BootTimeout)
	case err != nil && p.endsWithin(ctx, burial):
		return p.death(report.KindBoot, "while it booted")
	case err != nil:
		return fmt.Errorf("the process of the members does not answer: %w", err)
	case first.Late:
		return fmt.Errorf("the members were not ready within %s, and nothing says why: %s: try again where there is less to do, or allow more time", d.options.BootTimeout, first.Error)
	case first.Error != "":
		return verdict(first.Error, report.KindBoot, "the members did not start")
	}
	done()
	d.check.Compared += ", booted and elected a leader"
	return nil
}

// launch starts the program. It inherits the scratch folder's lock, so that
// nobody takes the folder away while it lives.
func launch(command []string, lock *os.File) (*process, error) {
	// Not bound to the context: a process that dies at a cancellation would look
	// like one that the image killed. end is always called.
	p := &process{cmd: exec.Command(command[0], command[1:]...), gone: make(chan struct{})} //nolint:noctx // see above
	p.cmd.Env = environment(os.Environ())
	p.cmd.ExtraFiles = []*os.File{lock}
	p.cmd.Stderr = &p.stderr
	// An interrupt from the terminal is for the drill, which then ends this one.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin, p.answers = stdin, json.NewDecoder(stdout)
	return p, nil
}

// wanted are the variables that a program may need to run at all. All others stay
// here: among them are the passwords of repositories, and proxies.
var wanted = []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LD_LIBRARY_PATH", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR"}

// environment is what the process of the members gets of this one's.
func environment(all []string) []string {
	own := []string{membersVariable + "=1"}
	for _, one := range all {
		if name, _, _ := strings.Cut(one, "="); slices.Contains(wanted, name) {
			own = append(own, one)
		}
	}
	return own
}

// order gives the order and waits for the first answer. Afterwards somebody
// listens until the process ends.
func (p *process) order(ctx context.Context, o order) (answer, error) {
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	var first answer
	err := json.NewEncoder(p.stdin.(io.Writer)).Encode(o)
	if err == nil {
		err = p.answers.Decode(&first)
	}
	go func() {
		defer close(p.gone)
		var last answer
		if p.answers.Decode(&last) == nil {
			p.failed = last.Error
			// It stays, and the drill is reported as if it had ended.
			p.kill()
		}
		// What it has started ends with it, and before its number is given to
		// somebody else: from here on kill does nothing.
		awaitEnd(p.cmd.Process.Pid)
		p.kill()
		p.err = p.cmd.Wait()
	}()
	return first, err
}

// kill ends the process at once, and what it has started: what they would still
// write is removed anyway. It does so once, and never after cmd.Wait.
func (p *process) kill() {
	p.once.Do(func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }) // it fails where all have ended
}

// end ends the process and waits for that. A nil process has ended.
func (p *process) end() {
	if p == nil {
		return
	}
	p.kill()
	_ = p.stdin.Close() // the process is gone
	<-p.gone
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// tailBytes holds etcd's last words and the stack of the goroutine that said
// them.
const tailBytes = 64 << 10

// Write keeps the end.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.kept)
}

var errPortTaken = errors.New("a port was taken before the members could listen")

// environmental are the operating system's words for what is no fault of an
// image. They arrive as text: etcd ends its process with them in its log.
var environmental = []string{
	syscall.ENOSPC.Error(), syscall.EDQUOT.Error(), syscall.EMFILE.Error(), syscall.ENFILE.Error(), syscall.ENOMEM.Error(),
	syscall.EIO.Error(), syscall.EROFS.Error(), syscall.EACCES.Error(), syscall.EPERM.Error(), syscall.EADDRNOTAVAIL.Error(),
	"out of memory", "failed to create new OS thread", "requorum: ",
}

// verdict is what an error that the members gave, or their last words, mean.
func verdict(words string, kind report.Kind, what string) error {
	if strings.Contains(words, syscall.EADDRINUSE.Error()) {
		return fmt.Errorf("%s: %w: %s", what, errPortTaken, words)
	}
	for _, e := range environmental {
		if strings.Contains(words, e) {
			return fmt.Errorf("%s: %s", what, words)
		}
	}
	return fault(kind, "%s: %s", what, words)
}

// burial is longer than a system takes to end a process of many gigabytes.
const burial = 10 * time.Second

// endsWithin waits for the process to end, but not longer than that.
func (p *process) endsWithin(ctx context.Context, most time.Duration) bool {
	select {
	case <-p.gone:
		return true
	default:
	}
	select {
	case <-p.gone:
		return true
	case <-ctx.Done():
	case <-time.After(most):
	}
	return false
}

// death is what it means that the process has ended.
func (p *process) death(kind report.Kind, when string) error {
	if p.failed != "" {
		return verdict(p.failed, kind, "a member ended "+when)
	}
	words := lastWords(p.stderr.bytes())
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return fmt.Errorf("the process of the members was killed %s, as systems do where memory runs out: free memory, or drill on another machine", when)
		}
	}
	if words == "" {
		return fmt.Errorf("the process of the members ended %s without a word (%s): is %s a program that runs them?", when, p.cmd.ProcessState, p.cmd.Path)
	}
	return verdict(words, kind, "etcd ended its process "+when)
}

// lastWords finds why etcd ended its process: the last line of its log at the
// level of a panic, or what the Go runtime said.
func lastWords(stderr []byte) string {
	var last, runtime string
	for line := range bytes.Lines(stderr) {
		line = bytes.TrimSpace(line)
		var entry struct{ Level, Msg, Error string }
		switch {
		case json.Unmarshal(line, &entry) == nil:
			if entry.Level == "fatal" || entry.Level == "panic" || entry.Level == "dpanic" {
				last = entry.Msg
				if entry.Error != "" {
					last += ": " + entry.Error
				}
			}
		case runtime == "" && (bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))):
			runtime = string(line)
		case bytes.HasPrefix(line, []byte("requorum: ")):
			runtime = string(line)
		}
	}
	if last == "" {
		last = runtime
	}
	if most := 500; len(last) > most {
		last = fmt.Sprintf("%s…", last[:most])
	}
	return last
}

// MembersCommand is the argument with which a drill starts this program anew,
// to call Members.
const MembersCommand = "drill-members"

// membersVariable is set for the process that runs the members, so that one
// which does not know MembersCommand cannot begin drills without end.
const membersVariable = "REQUORUM_DRILL_MEMBERS"

// order is what a drill asks its process for, in one line of JSON.
type order struct {
	Members     []store.MemberConfig `json:"members"`
	BootTimeout time.Duration        `json:"boot_timeout"`
}

// answer is what that process says, in a line of JSON each.
type answer struct {
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
	// Late says that the time to boot was over.
	Late bool `json:"late,omitempty"`
}

// Members runs the members that a drill orders on in, says on out how it goes,
// and returns when in ends, which is when the drill is over or dead. The caller
// then ends the process, and with it the members: what they would still write,
// nobody reads.
func Members(ctx context.Context, in io.Reader, out io.Writer) error {
	// If memory runs out, this process is the one to end. Only Linux knows that,
	// and elsewhere nothing is lost.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) //nolint:forbidigo // the kernel's files

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := json.NewDecoder(in)
	var o order
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("drill: read what to start: %w: only 'requorum verify --level drill' starts this", err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, io.MultiReader(orders.Buffered(), in)) // however it ends, the drill is over
	}()
	answers := json.NewEncoder(out)
	starting, stop := context.WithTimeout(ctx, o.BootTimeout)
	defer stop()
	cluster, err := store.StartMembers(starting, o.Members)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		late := errors.Is(starting.Err(), context.DeadlineExceeded)
		return answers.Encode(answer{Error: err.Error(), Late: late})
	}
	if err := answers.Encode(answer{Ready: true}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-cluster.Err():
		return answers.Encode(answer{Error: fmt.Sprint(err)})
	}
}
