package drill

import (
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
	stdin   io.Closer // its end tells the process that the drill is over
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
		return unable("start the members: %w", err)
	}
	d.process = p
	o := order{InitialCluster: d.plan.InitialCluster(), Token: d.plan.ClusterToken, BootTimeout: d.options.BootTimeout}
	for _, m := range d.plan.Members {
		o.Members = append(o.Members, orderedMember{Name: m.Name, DataDir: m.DataDir, PeerURL: m.PeerURLs[0], ClientURL: d.clients[m.Name]})
	}
	// The process minds the time too, but not while etcd opens the database.
	starting, cancel := context.WithTimeout(ctx, d.options.BootTimeout+burial)
	defer cancel()
	first, err := p.order(starting, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && starting.Err() != nil:
		return unable("the members had not opened their databases after %s: try again where there is less to do, or allow more time", d.options.BootTimeout)
	case err != nil && p.endsWithin(ctx, burial):
		return p.death(report.KindBoot, "while it booted")
	case err != nil:
		return unable("the process of the members does not answer: %w", err)
	case first.Late:
		return unable("the members were not ready within %s, and nothing says why: %s: try again where there is less to do, or allow more time", d.options.BootTimeout, first.Error)
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
			// It stays, and the drill is told as if it had ended.
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
