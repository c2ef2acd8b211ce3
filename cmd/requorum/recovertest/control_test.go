package recovertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/store/storetest"
)

// reachable writes the command that reaches the host, in the place of ssh: it runs
// what it is given in the host's namespace, with the host's own environment and more,
// behind two processes that stand for the line. Where the link is down it says so.
func (h *Host) reachable(t testing.TB, env ...string) {
	t.Helper()
	var own []string
	for _, e := range append(h.hostEnv(), env...) {
		// Credentials come from the operator.
		if !strings.HasPrefix(e, "AWS_") || strings.Contains(strings.Join(env, " "), e) {
			own = append(own, fmt.Sprintf("'%s'", e))
		}
	}
	end := fmt.Sprintf(`sh -c 'echo $$ >>%s; exec cat'`, h.linesFile())
	h.writeMode(t, "reach", fmt.Sprintf(`#!/bin/sh
if [ -e %s ]; then
	echo 'ssh: connect to host %s port 22: No route to host' >&2
	exit 255
fi
%s | env -i %s ip netns exec %s "$@" | %s
`, h.downFile(), h.Address, end, strings.Join(own, " "), h.space, end), 0o700)
}

func (h *Host) linesFile() string { return filepath.Join(h.dir, "lines") }
func (h *Host) downFile() string  { return filepath.Join(h.dir, "down") }

// cutLines ends the processes that stand for the lines to the host; what runs there
// stays.
func (h *Host) cutLines(t testing.TB) {
	t.Helper()
	data, err := os.ReadFile(h.linesFile())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for text := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(text)
		if err != nil || pid < 2 {
			continue
		}
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(name) == "cat\n" {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// hostProcesses are those of `requorum host` on the host.
func (h *Host) hostProcesses(t testing.TB) (all []int) {
	for _, pid := range h.space.running(t, storetest.Requorum(t)) {
		if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasSuffix(string(command), "\x00host\x00") {
			all = append(all, pid)
		}
	}
	return all
}

// KillControl is kill -9 of the host's `requorum host`; the member that it started
// stays.
func (h *Host) KillControl(t testing.TB) {
	t.Helper()
	h.space.kill(t, h.hostProcesses)
}

// keys are those of the host in the cluster file.
func (h *Host) keys(t testing.TB) string {
	t.Helper()
	clients := ""
	if h.site.options.Clients {
		clients = fmt.Sprintf(", clients: [{name: front, kind: command, process: %s, command: {start: [%q], stop: [%q]}}]", h.front(), filepath.Join(h.dir, "start-front"), filepath.Join(h.dir, "stop-front"))
	}
	return fmt.Sprintf("{member: %s, peer-urls: [%q], client-urls: [%q], run: %q, requorum: %q, data-dir: %q, kind: command, command: {start: [%q], stop: [%q]}, stop-timeout: 30s, start-timeout: 30s, state-dir: %q%s}",
		h.Name, h.PeerURL, h.ClientURL, filepath.Join(h.dir, "reach"), storetest.Requorum(t), h.DataDir, filepath.Join(h.dir, "start-etcd"), filepath.Join(h.dir, "stop-etcd"), h.StateDir(), clients)
}

// ControlClient asks the host for a run. It ends with the test.
func (h *Host) ControlClient(t testing.TB, run string) *host.Client {
	t.Helper()
	cfg, err := recovery.ReadConfig(h.site.ClusterFile(t, h))
	require.NoError(t, err)
	lines := recovery.Lines(recovery.Request{Config: cfg, Version: "dev"}, func() *os.File { return nil })
	t.Cleanup(lines[0].Close)
	return lines[0].As(run)
}

// ClusterFile writes the file that `requorum recover --config` reads, with the
// hosts given, and gives its path.
func (s *Site) ClusterFile(t testing.TB, hosts ...*Host) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: %s\n", s.Cluster)
	if s.Repository != "" {
		fmt.Fprintf(&b, "repositories: [%q]\n", s.Repository)
	}
	b.WriteString("hosts:\n")
	for _, h := range hosts {
		b.WriteString("  - " + h.keys(t) + "\n")
	}
	path := filepath.Join(s.Dir, "cluster.yaml")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}
