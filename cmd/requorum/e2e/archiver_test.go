package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// archiver is `requorum archive` beside one member, under way.
type archiver struct {
	user   *user
	args   []string
	member *storetest.Member
	spool  string
	output *storetest.Output

	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
	err   error         // how; read after ended
}

// archive starts an archiver beside a member: with intervals so short that
// everything that happens in days happens in seconds. It is killed with the
// test.
func (u *user) archive(t testing.TB, c *storetest.Cluster, member int, repo string, more ...string) *archiver {
	t.Helper()
	m := c.Member(member)
	a := &archiver{user: u, member: m, output: &storetest.Output{}, spool: u.Path("spool-" + m.Name)}
	a.args = append([]string{"archive", "--data-dir", m.DataDir, "--endpoints", m.ClientURL, "--repo", repo,
		"--interval", "200ms", "--takeover", "2s", "--spool-dir", a.spool, "--status", "1s"}, more...)
	a.start(t)
	t.Cleanup(a.kill)
	return a
}

// archiveAll starts an archiver beside each member.
func (u *user) archiveAll(t testing.TB, c *storetest.Cluster, repo string, more ...string) []*archiver {
	t.Helper()
	var all []*archiver
	for i := range c.Size() {
		all = append(all, u.archive(t, c, i, repo, more...))
	}
	return all
}

func (a *archiver) start(t testing.TB) {
	t.Helper()
	fmt.Fprintf(a.output, "--- started\n")
	a.cmd, a.ended = exec.Command(a.user.Binary, a.args...), make(chan struct{})
	a.cmd.Dir, a.cmd.Env = a.user.Dir, a.user.Env
	a.cmd.Stdout, a.cmd.Stderr = a.output, a.output
	a.cmd.SysProcAttr = storetest.WithParent(syscall.SIGKILL)
	require.NoError(t, a.cmd.Start())
	go func(cmd *exec.Cmd, ended chan struct{}) {
		a.err = cmd.Wait()
		close(ended)
	}(a.cmd, a.ended)
}

// signal wants the archiver to be there still.
func (a *archiver) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	select {
	case <-a.ended:
		t.Fatalf("the archiver of %s had ended: %v\n%s", a.member.Name, a.err, a.output)
	default:
	}
	require.NoError(t, a.cmd.Process.Signal(sig), "the archiver of %s", a.member.Name)
}

// kill is kill -9. It returns when the process is gone.
func (a *archiver) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.ended
}

// restart is kill -9 of a running archiver, and a start.
func (a *archiver) restart(t testing.TB) {
	t.Helper()
	a.signal(t, syscall.SIGKILL)
	<-a.ended
	a.start(t)
}

// stop is SIGTERM, and wants it to end well.
func (a *archiver) stop(t testing.TB) {
	t.Helper()
	a.signal(t, syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(5 * time.Minute):
		t.Fatalf("the archiver of %s goes on five minutes after SIGTERM\n%s", a.member.Name, a.output)
	}
	if a.err != nil {
		t.Errorf("the archiver of %s: %v\n%s", a.member.Name, a.err, a.output)
	}
}

// says waits until its output holds a text.
func (a *archiver) says(t testing.TB, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the archiver of %s says %q", a.member.Name, text), func() error {
		if out := a.output.String(); !strings.Contains(out, text) {
			return fmt.Errorf("it said\n%s", out)
		}
		return nil
	})
}
