package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/restore/recovery/supervisor/kubelettest"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
)

// node is a host's clients: pods under a kubelet, and one that commands start.
type node struct {
	base    string
	kubelet *kubelettest.Kubelet
	crictl  string
	clients []supervisor.ClientConfig
}

func newNode(t *testing.T, delay time.Duration) *node {
	t.Helper()
	n := &node{base: t.TempDir()}
	n.kubelet = &kubelettest.Kubelet{Folder: filepath.Join(n.base, "manifests"), Delay: delay, CRI: t.TempDir()}
	n.crictl = n.kubelet.Crictl(t)
	require.NoError(t, os.Mkdir(n.kubelet.Folder, 0o700))
	n.kubelet.Run(t)
	return n
}

var programs atomic.Int64

// program is a program that waits, under a name of its own.
func (n *node) program(t *testing.T, name string) (path, unique string) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	unique = fmt.Sprintf("%s-%d-%d", name, os.Getpid(), programs.Add(1))
	path = filepath.Join(n.base, "bin", unique)
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700)); err == nil {
		err = os.Symlink(sleep, path)
	}
	require.NoError(t, err)
	return path, unique
}

const patience = yamlfile.Duration(20 * time.Second)

// deaf ignores SIGTERM.
const deaf = "trap '' TERM; while :; do sleep 0.1; done"

// pod adds a static pod, and waits until it runs. Its program ignores SIGTERM if it is deaf.
func (n *node) pod(t *testing.T, name string, restart bool) {
	t.Helper()
	path, unique := n.program(t, name)
	arguments := []string{path, "3600"}
	if name == "deaf" {
		require.NoError(t, errors.Join(os.Remove(path), os.Symlink("/bin/sh", path)))
		arguments = []string{path, "-c", deaf}
	}
	manifest := filepath.Join(n.kubelet.Folder, name+".yaml")
	text := filepath.Join(n.base, name+".yaml")
	require.NoError(t, errors.Join(os.WriteFile(text, []byte(kubelettest.Manifest(unique, arguments...)), 0o600), os.Rename(text, manifest)))
	n.clients = append(n.clients, supervisor.ClientConfig{
		Name: name, Process: unique, Restart: restart,
		ServiceConfig: supervisor.ServiceConfig{
			Kind: supervisor.StaticPod, StopTimeout: patience, StartTimeout: patience,
			StaticPod: supervisor.StaticPodMember{Manifest: manifest, AsideDir: filepath.Join(n.base, "aside"), CRISocket: "unix:///x", Crictl: n.crictl, Container: unique},
		},
	})
	n.awaitRunning(t, unique)
}

// awaitRunning waits until a program has its name: between fork and exec it has its
// parent's.
func (n *node) awaitRunning(t *testing.T, program string) {
	t.Helper()
	for range 1000 {
		if n.running(t, program) == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(program + " does not start")
}

// start runs the start program of a client, and waits until it runs.
func (n *node) start(t *testing.T, c supervisor.ClientConfig) {
	t.Helper()
	if out, err := exec.Command(c.Command.Start[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.awaitRunning(t, c.Process)
}

// command adds a client that scripts start and stop, which write down when.
func (n *node) command(t *testing.T, name string, runs bool) {
	t.Helper()
	path, unique := n.program(t, name)
	script := func(verb, text string) []string {
		file := filepath.Join(n.base, name+"-"+verb)
		require.NoError(t, storetest.WriteProgram(file, []byte(fmt.Sprintf("#!/bin/sh\necho %s %s >>%s/calls\n%s", verb, name, n.base, text)), 0o700))
		return []string{file}
	}
	pid := filepath.Join(n.base, name+".pid")
	c := supervisor.ClientConfig{Name: name, Process: unique}
	c.Kind, c.StopTimeout, c.StartTimeout = supervisor.Command, patience, patience
	arguments, wait := "3600", ""
	if name == "deaf-command" {
		require.NoError(t, errors.Join(os.Remove(path), os.Symlink("/bin/sh", path)))
		arguments, wait = fmt.Sprintf("-c %q", deaf), "while kill -0 $(cat "+pid+"); do sleep 0.05; done 2>/dev/null\n"
	}
	c.Command = supervisor.CommandMember{
		Start: script("start", fmt.Sprintf("setsid %s %s >/dev/null 2>&1 &\necho $! >%s\n", path, arguments, pid)),
		Stop:  script("stop", "kill $(cat "+pid+") || true\n"+wait), // an earlier one, whose host process was killed, may have done it just now
	}
	t.Cleanup(func() {
		killPID(pid)
	})
	if runs {
		n.start(t, c)
	}
	n.clients = append(n.clients, c)
}

func (n *node) calls(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.base, "calls"))
	require.NoError(t, err)
	return strings.Join(strings.Split(strings.TrimSpace(string(data)), "\n"), ", ")
}

func (n *node) running(t *testing.T, program string) int {
	t.Helper()
	table, err := supervisor.ProcessesNamed(program)
	require.NoError(t, err)
	return len(table.Using)
}

// whole fails where the kubelet ever read anything but whole manifests, one of each.
func (n *node) whole(t *testing.T) map[string]int {
	t.Helper()
	starts, _, faults := n.kubelet.Seen()
	if len(faults) > 0 {
		t.Errorf("the kubelet found: %q", faults)
	}
	return starts
}

// expect are the phases of clients, by name, and whether they are stopped.
func expectClients(t *testing.T, got []ClientState, want ...string) {
	t.Helper()
	var is []string
	for _, c := range got {
		state := "unknown"
		switch {
		case c.Stopped:
			state = "gone"
		case c.Runs && c.Why != "":
			state = "runs"
		}
		is = append(is, fmt.Sprintf("%s %s %s", c.Name, state, c.Phase))
	}
	if strings.Join(is, ", ") != strings.Join(want, ", ") {
		t.Errorf("clients are %q, want %q", is, want)
	}
}

// TestQuiesceAndResume (promise 6): clients are stopped in their order and started in
// the reverse one, what did not run before is left so, what is to be restarted is
// left until then; each twice, over restarts of the process.
func TestQuiesceAndResume(t *testing.T) {
	t.Parallel()
	n := newNode(t, 0)
	n.command(t, "first", true)
	n.command(t, "second", true)
	n.command(t, "off", false)
	n.pod(t, "apiserver", false)
	n.pod(t, "manager", true)
	cfg := quietHost(t)
	cfg.Clients = n.clients
	line := lineTo(t, cfg, "test")
	c := line.As(run1)
	done, err := c.Resume(t.Context(), false)
	if err != nil || len(done.Warnings) > 0 {
		t.Fatalf("%+v %v", done, err)
	}
	expectClients(t, done.Clients, "first runs ", "second runs ", "off gone ", "apiserver runs ", "manager runs ")
	for range 2 {
		done, err = c.Quiesce(t.Context(), false)
		require.NoError(t, err)
		quiesced := []string{"first gone stopped", "second gone stopped", "off gone stopped", "apiserver gone stopped", "manager runs "}
		expectClients(t, done.Clients, quiesced...)
		line.Close()
		line = lineTo(t, cfg, "test")
		c = line.As(run1)
		state, err := c.Member(t.Context())
		require.NoError(t, err)
		expectClients(t, state.Clients, quiesced...)
		if ran := state.Clients[2].Ran; ran == nil || *ran || !*state.Clients[0].Ran {
			t.Errorf("%+v", state.Clients)
		}
	}
	// Somebody starts one meanwhile: it is stopped again.
	n.start(t, n.clients[0])
	if done, err = c.Quiesce(t.Context(), false); err != nil || !done.Clients[0].Stopped {
		t.Fatalf("%+v %v", done, err)
	}
	if done, err = c.Resume(t.Context(), false); err != nil || len(done.Warnings) != 1 || !strings.Contains(done.Warnings[0], "client off did not run before") {
		t.Fatalf("%+v %v", done, err)
	}
	expectClients(t, done.Clients, "first runs started", "second runs started", "off gone left", "apiserver runs started", "manager runs restarted")
	if want := "start first, start second, stop first, stop second, start first, stop first, start second, start first"; n.calls(t) != want {
		t.Errorf("in order: %s, want %s", n.calls(t), want)
	}
	if starts := n.whole(t); starts[n.clients[3].Process] != 2 || starts[n.clients[4].Process] != 2 {
		t.Errorf("%v", starts)
	}
	if done, err = c.Resume(t.Context(), false); err != nil || len(done.Warnings) > 0 {
		t.Errorf("again: %+v %v", done, err)
	}
}

// TestQuiesceKills: a client that does not end is killed after a while, if that is wanted and
// its supervisor knows the process.
func TestQuiesceKills(t *testing.T) {
	t.Parallel()
	n := newNode(t, 0)
	n.pod(t, "deaf", false)
	n.clients[0].StopTimeout = yamlfile.Duration(killAfter + time.Second)
	n.command(t, "deaf-command", true)
	n.clients[1].StopTimeout = yamlfile.Duration(time.Minute)
	cfg := quietHost(t)
	cfg.Clients = n.clients
	c := lineTo(t, cfg, "test").As(run1)
	if _, err := c.Quiesce(t.Context(), false); codeOf(err) != Failed || !strings.Contains(err.Error(), "client deaf is not stopped") {
		t.Fatalf("%v", err)
	}
	cfg.Clients[0].StopTimeout = yamlfile.Duration(time.Minute)
	began := time.Now()
	done, err := lineTo(t, cfg, "test").As(run1).Quiesce(t.Context(), true)
	if err != nil || len(done.Warnings) != 2 || !strings.Contains(done.Warnings[0], "client deaf did not end within 5s, and was killed") ||
		!strings.Contains(done.Warnings[1], "client deaf-command did not end within 5s, and was killed") {
		t.Fatalf("%+v %v", done, err)
	}
	expectClients(t, done.Clients, "deaf gone stopped", "deaf-command gone stopped")
	t.Logf("it took %s", time.Since(began))
}

// TestResumeAll (promise 6): all clients are started, whatever ran before. One that does not
// start, or ends at once, is named, and keeps none of the others down; the next resume goes
// on. When the same run is taken back, only those are started that ran before it; another run
// looks again.
func TestResumeAll(t *testing.T) {
	t.Parallel()
	n := newNode(t, 0)
	n.command(t, "on", true)
	n.command(t, "broken", false)
	n.command(t, "off", false)
	n.clients[1].StartTimeout = yamlfile.Duration(3 * time.Second)
	start := n.clients[1].Command.Start[0]
	program, err := os.ReadFile(start)
	if err == nil {
		err = storetest.WriteProgram(start, []byte("#!/bin/sh\n"), 0o700)
	}
	require.NoError(t, err)
	cfg := quietHost(t)
	cfg.Clients = n.clients
	line := lineTo(t, cfg, "test")
	c := line.As(run1)
	_, err = c.Quiesce(t.Context(), false)
	require.NoError(t, err)
	for range 2 {
		if _, err := c.Resume(t.Context(), true); codeOf(err) != Failed || !strings.Contains(err.Error(), "client broken is not started") || strings.Contains(err.Error(), "client off") {
			t.Fatalf("%v", err)
		}
	}
	require.NoError(t, storetest.WriteProgram(start, program, 0o700))
	killPID(filepath.Join(n.base, "off.pid")) // it ends again
	storetest.Eventually(t, "off ends", func() error { return gone(n.running(t, n.clients[2].Process)) })
	for range 2 {
		done, err := c.Resume(t.Context(), true)
		require.NoError(t, err)
		expectClients(t, done.Clients, "on runs started", "broken runs started", "off runs started")
	}
	_, err = c.Quiesce(t.Context(), false)
	require.NoError(t, err)
	done, err := c.Resume(t.Context(), false)
	if err != nil || len(done.Warnings) != 2 {
		t.Fatalf("taken back: %+v %v", done, err)
	}
	expectClients(t, done.Clients, "on runs started", "broken gone left", "off gone left")

	_, err = c.Quiesce(t.Context(), false)
	require.NoError(t, err)
	_, err = c.Resume(t.Context(), true)
	require.NoError(t, err)
	decide(t, line, run2, 1)
	_, err = line.As(run2).Quiesce(t.Context(), false)
	require.NoError(t, err)
	done, err = line.As(run2).Resume(t.Context(), false)
	require.NoError(t, err)
	expectClients(t, done.Clients, "on runs started", "broken runs started", "off runs started")
}

func gone(processes int) error {
	if processes > 0 {
		return fmt.Errorf("%d processes", processes)
	}
	return nil
}

// TestQuiesceThatFails: a client that is not proved to be stopped ends the quiesce,
// which is gone on with, or undone by a resume; what was not touched stays so.
func TestQuiesceThatFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, 0)
	n.command(t, "one", true)
	n.command(t, "stubborn", true)
	n.command(t, "untouched", true)
	n.clients[1].StopTimeout = yamlfile.Duration(300 * time.Millisecond)
	stop := n.clients[1].Command.Stop[0]
	stubborn, err := os.ReadFile(stop)
	if err == nil {
		err = storetest.WriteProgram(stop, []byte("#!/bin/sh\n"), 0o700)
	}
	require.NoError(t, err)
	cfg := quietHost(t)
	cfg.Clients = n.clients
	c := lineTo(t, cfg, "test").As(run1)
	for range 2 {
		if _, err := c.Quiesce(t.Context(), false); codeOf(err) != Failed || !strings.Contains(err.Error(), "client stubborn is not stopped") || !strings.Contains(err.Error(), "stop-timeout") {
			t.Fatalf("%v", err)
		}
	}
	state, err := c.Member(t.Context())
	require.NoError(t, err)
	expectClients(t, state.Clients, "one gone stopped", "stubborn runs stopping", "untouched runs ")
	require.NoError(t, storetest.WriteProgram(stop, stubborn, 0o700))
	done, err := c.Resume(t.Context(), false)
	require.NoError(t, err)
	expectClients(t, done.Clients, "one runs started", "stubborn runs started", "untouched runs started")
	if want := "start one, start stubborn, start untouched, stop one, start one"; n.calls(t) != want {
		t.Errorf("in order: %s, want %s", n.calls(t), want)
	}
	// One that left the configuration meanwhile is not forgotten. This stop is to
	// succeed, however busy the machine is.
	cfg.Clients[1].StopTimeout = yamlfile.Duration(time.Minute)
	_, err = lineTo(t, cfg, "test").As(run1).Quiesce(t.Context(), false)
	require.NoError(t, err)
	without := *cfg
	without.Clients = n.clients[1:]
	if _, err := lineTo(t, &without, "test").As(run1).Resume(t.Context(), false); codeOf(err) != BadRequest || !strings.Contains(err.Error(), "client one was quiesced") {
		t.Errorf("%v", err)
	}
	// A run that is begun then knows of the clients.
	line := lineTo(t, cfg, "test")
	decide(t, line, run2, 1)
	_, err = line.As(run2).Quiesce(t.Context(), false)
	require.NoError(t, err)
	done, err = line.As(run2).Resume(t.Context(), false)
	require.NoError(t, err)
	expectClients(t, done.Clients, "one runs started", "stubborn runs started", "untouched runs started")
}

// TestFaultsOfClients: what a recovery would fail for is reported before.
func TestFaultsOfClients(t *testing.T) {
	t.Parallel()
	n := newNode(t, 0)
	n.pod(t, "apiserver", false)
	cfg := quietHost(t)
	cfg.Clients = n.clients
	if m, err := lineTo(t, cfg, "test").As(run1).Member(t.Context()); err != nil || len(m.Faults) > 0 {
		t.Fatalf("%+v %v", m, err)
	}
	cfg.Clients[0].Process = "kube-apisrever"
	m, err := lineTo(t, cfg, "test").As(run1).Member(t.Context())
	if err != nil || len(m.Faults) != 1 || !strings.Contains(m.Faults[0], "client apiserver (static-pod)") || !strings.Contains(m.Faults[0], "correct process:") {
		t.Errorf("%+v %v", m, err)
	}
}

// TestKilledInQuiesceAndResume (promise 6): the host process is killed at many moments
// of a quiesce and of a resume, and the next one goes on: everything is gone at
// the end of the one, everything runs at the end of the other, no client that was off is
// started, and the kubelet sees whole manifests only.
func TestKilledInQuiesceAndResume(t *testing.T) {
	t.Parallel()
	n := newNode(t, 150*time.Millisecond)
	n.command(t, "one", true)
	n.command(t, "off", false)
	n.pod(t, "apiserver", false)
	n.pod(t, "manager", true)
	cfg := quietHost(t)
	cfg.Clients = n.clients
	type verb struct {
		name string
		ask  func(*Client, context.Context) (*Done, error)
		want map[string]int
	}
	verbs := []verb{
		{"quiesce", func(c *Client, ctx context.Context) (*Done, error) { return c.Quiesce(ctx, false) }, map[string]int{"one": 0, "off": 0, "apiserver": 0, "manager": 1}},
		{"resume", func(c *Client, ctx context.Context) (*Done, error) { return c.Resume(ctx, false) }, map[string]int{"one": 1, "off": 0, "apiserver": 1, "manager": 1}},
	}
	// After the request was sent: moments of the action, which nothing outside waits for.
	delays := []time.Duration{2, 5, 9, 14, 20, 40, 90, 180, 300, 500}
	kills, rounds, at, want := map[string]int{}, 0, 0, storetest.Amount(4, 10, 10)
	for ; min(kills["quiesce"], kills["resume"]) < want && rounds < 20; rounds++ {
		for _, v := range verbs {
			for attempt := 0; ; attempt++ {
				line := lineTo(t, cfg, "test")
				c := line.As(run1)
				_, err := c.Member(t.Context())
				require.NoError(t, err)
				ended := make(chan error, 1)
				go func() { _, err := v.ask(c, t.Context()); ended <- err }()
				if attempt == 6 {
					require.NoError(t, <-ended, "%s, after %d kills", v.name, attempt)
					line.Close()
					break
				}
				time.Sleep(delays[at%len(delays)] * time.Millisecond)
				at++
				// The process alone: what it has started goes on.
				if err := syscall.Kill(line.PID(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
				if <-ended == nil {
					break // it had ended before
				}
				kills[v.name]++
			}
			for _, c := range n.clients {
				if got := n.running(t, c.Process); got != v.want[c.Name] {
					t.Fatalf("round %d, after %s: %d processes of %s, want %d", rounds, v.name, got, c.Name, v.want[c.Name])
				}
			}
		}
	}
	starts := n.whole(t)
	if got := starts[n.clients[2].Process]; got != 1+rounds {
		t.Errorf("the API server was started %d times in %d rounds", got, rounds)
	}
	if got := starts[n.clients[3].Process]; got < 1+rounds {
		t.Errorf("the manager was started %d times in %d rounds", got, rounds)
	}
	if got := strings.Count(n.calls(t), "start one"); got != 1+rounds || strings.Contains(n.calls(t), "off") {
		t.Errorf("%d starts in %d rounds: %s", got, rounds, n.calls(t))
	}
	if min(kills["quiesce"], kills["resume"]) < want {
		t.Errorf("killed only %v times", kills)
	}
	t.Logf("killed %v times in %d rounds", kills, rounds)
}
