package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// archiver is an agent beside one member, under way, that archives alone.
type archiver struct {
	*storetest.Process
	user   *user
	args   []string
	member *storetest.Member
	spool  string
	log    string // the file that it prints to
}

// archive starts an archiver beside a member: with intervals so short that
// everything that happens in days happens in seconds. more is YAML with other keys.
func (u *user) archive(t testing.TB, c *storetest.Cluster, member int, repo string, more ...string) *archiver {
	t.Helper()
	return u.agent(t, c, member, repo, append([]string{"jobs: none", "archive: {interval: 200ms}"}, more...)...).archiver
}

// begin starts it. It is killed with the test, which shows its log when it failed.
func (a *archiver) begin(t testing.TB) {
	t.Helper()
	a.log = filepath.Join(t.TempDir(), "archiver.log")
	a.start(t)
	t.Cleanup(func() {
		a.Kill()
		if t.Failed() {
			t.Logf("end of the log of the archiver of %s:\n%s", a.member.Name, storetest.Tail(a.log, 40))
		}
	})
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
	cmd := exec.Command(a.user.Binary, a.args...)
	cmd.Dir, cmd.Env = a.user.Dir, a.user.Env
	var err error
	a.Process, err = storetest.StartProcess(cmd, a.log)
	require.NoError(t, err)
}

// signal wants the archiver to be there still.
func (a *archiver) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if !a.Running() {
		t.Fatalf("the archiver of %s had ended: %s", a.member.Name, a.Cmd.ProcessState)
	}
	require.NoError(t, a.Cmd.Process.Signal(sig), "the archiver of %s", a.member.Name)
}

// restart is kill -9 of a running archiver, and a start.
func (a *archiver) restart(t testing.TB) {
	t.Helper()
	a.signal(t, syscall.SIGKILL)
	<-a.Done()
	a.start(t)
}

// stop is SIGTERM, and wants it to end well.
func (a *archiver) stop(t testing.TB) {
	t.Helper()
	a.signal(t, syscall.SIGTERM)
	select {
	case <-a.Done():
	case <-time.After(5 * time.Minute):
		t.Fatalf("the archiver of %s goes on five minutes after SIGTERM", a.member.Name)
	}
	if !a.Cmd.ProcessState.Success() {
		t.Errorf("the archiver of %s: %s", a.member.Name, a.Cmd.ProcessState)
	}
}

// says waits until its output holds a text.
func (a *archiver) says(t testing.TB, text string) {
	t.Helper()
	storetest.Eventually(t, fmt.Sprintf("the archiver of %s says %q", a.member.Name, text), func() error {
		if !strings.Contains(readOrNone(t, a.log), text) {
			return errors.New("it does not")
		}
		return nil
	})
}
