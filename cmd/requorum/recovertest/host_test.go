package recovertest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Host is a machine: a network namespace, a folder as its disk, and processes.
type Host struct {
	Name      string // of its member
	Address   string
	PeerURL   string
	ClientURL string
	DataDir   string

	site   *Site
	number int
	dir    string
	space  namespace
	agent  *storetest.Process
}

func (s *Site) addHost(t testing.TB, n int) *Host {
	t.Helper()
	a := address(s.number, n)
	h := &Host{
		Name: fmt.Sprint("m", n), Address: a,
		PeerURL: "http://" + a + ":2380", ClientURL: "http://" + a + ":2379",
		DataDir: s.path(n, "etcd"),
		site:    s, number: n, dir: s.path(n), space: addHost(t, s.number, n),
	}
	for _, dir := range []string{h.dir, h.StateDir()} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	return h
}

// configure writes what the host's processes read, once all hosts are known.
func (h *Host) configure(t testing.TB) {
	t.Helper()
	h.reachable(t)
	h.writeEtcd(t)
	if h.site.options.Clients {
		h.writeFront(t)
	}
	if h.site.Repository != "" {
		h.write(t, "agent.yaml", h.agentConfig())
	}
}

func (h *Host) write(t testing.TB, name, text string) { h.writeMode(t, name, text, 0o600) }

func (h *Host) writeMode(t testing.TB, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := storetest.WriteProgram(path+".new", []byte(text), mode); err != nil { // it may be one
		t.Fatal(err)
	}
	require.NoError(t, os.Rename(path+".new", path))
}

// StateDir is that of `requorum host`: its state.json.
func (h *Host) StateDir() string { return filepath.Join(h.dir, "state") }

// LinkDown pulls the host's cable, LinkUp plugs it in: the processes stay.
func (h *Host) LinkDown(t testing.TB) {
	t.Helper()
	h.write(t, "down", "")
	ip(t, "link", "set", cable(h.site.number, h.number), "down")
	h.cutLines(t)
}

// LinkUp ends a LinkDown, and a Down, after which the member starts only if the test calls
// StartEtcd.
func (h *Host) LinkUp(t testing.TB) {
	t.Helper()
	ip(t, "link", "set", cable(h.site.number, h.number), "up")
	require.NoError(t, os.Remove(h.downFile()))
}

// Down is a host without power: nothing runs, nothing answers. Its disk stays.
func (h *Host) Down(t testing.TB) {
	t.Helper()
	h.LinkDown(t)
	h.space.killAll(t)
	h.agent.Kill()
}

// DiskLost empties the disk: data, and what the processes remember. The
// configuration is written anew, as for a host that is set up again.
func (h *Host) DiskLost(t testing.TB) {
	t.Helper()
	if running := h.space.processes(t); len(running) > 0 {
		t.Fatalf("processes %v of host %s still run on the disk", running, h.Name)
	}
	for _, name := range []string{"etcd", "state", "spool", "scratch"} {
		require.NoError(t, os.RemoveAll(filepath.Join(h.dir, name)))
	}
	require.NoError(t, os.Mkdir(h.StateDir(), 0o700))
}

// etcdCommand is what the host's unit would run, now and after a recovery.
func (h *Host) etcdCommand() []string {
	command := []string{
		h.site.etcd, "--name", h.Name, "--data-dir", h.DataDir,
		"--listen-peer-urls", h.PeerURL, "--initial-advertise-peer-urls", h.PeerURL,
		"--listen-client-urls", h.ClientURL, "--advertise-client-urls", h.ClientURL,
		"--initial-cluster", h.site.InitialCluster(), "--initial-cluster-state", "new",
		"--logger", "zap",
	}
	return append(command, h.site.options.EtcdArgs...)
}

// hostEnv is the environment of a host's processes.
func (h *Host) hostEnv() []string {
	return append(slices.Clone(h.site.Env), "HOME="+h.dir, "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
}

// StartEtcd starts the member as a unit does at boot, whatever lies in its data
// directory, and with more arguments. It does not wait: see Site.WaitReady.
func (h *Host) StartEtcd(t testing.TB, args ...string) {
	t.Helper()
	if running := h.Etcd(t); len(running) > 0 {
		t.Fatalf("member %s runs already: process %v", h.Name, running)
	}
	command := append(h.etcdCommand(), args...)
	h.space.start(t, h.EtcdLog(), h.hostEnv(), command[0], command[1:]...)
}

// EtcdLog is what the member prints, whoever starts it.
func (h *Host) EtcdLog() string { return filepath.Join(h.dir, "etcd.log") }

// Etcd are the processes of the host's member.
func (h *Host) Etcd(t testing.TB) []int {
	t.Helper()
	return h.space.running(t, h.site.etcd)
}

// KillEtcd is kill -9 of the member, and returns when it is gone.
func (h *Host) KillEtcd(t testing.TB) {
	t.Helper()
	h.space.kill(t, h.Etcd)
}

// WaitReady waits until the members of these hosts serve with a quorum.
func (s *Site) WaitReady(t testing.TB, hosts ...*Host) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for _, h := range hosts {
		storetest.Eventually(t, h.Name+" is ready", func() error { return storetest.Healthy(client, h.ClientURL) })
	}
}

// writeEtcd writes the programs that start and stop the member during a recovery, whoever
// started it. A member that waits for its quorum takes long to end: it is killed then.
func (h *Host) writeEtcd(t testing.TB) {
	t.Helper()
	h.writeMode(t, "start-etcd", fmt.Sprintf("#!/bin/sh\nsetsid %s </dev/null >>%s 2>&1 &\n", strings.Join(h.etcdCommand(), " "), h.EtcdLog()), 0o700)
	h.writeMode(t, "stop-etcd", fmt.Sprintf(`#!/bin/sh
members() {
	for pid in $(ip netns pids %s); do
		[ "$(readlink /proc/$pid/exe)" != %q ] || echo $pid
	done
}
for signal in TERM KILL; do
	kill -$signal $(members) 2>/dev/null
	for i in $(seq 100); do
		[ -n "$(members)" ] || exit 0
		sleep 0.1
	done
done
exit 1
`, h.space, h.site.etcd), 0o700)
}

// front is the name of the program, of no other host, that stands for a client of the cluster:
// it only runs.
func (h *Host) front() string { return fmt.Sprintf("front%dm%d", h.site.number, h.number) }

// writeFront writes what starts and stops it.
func (h *Host) writeFront(t testing.TB) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	program, pid := filepath.Join(h.dir, h.front()), filepath.Join(h.dir, "front.pid")
	require.NoError(t, os.Symlink(sleep, program))
	h.writeMode(t, "start-front", fmt.Sprintf("#!/bin/sh\nsetsid %s 86400 </dev/null >/dev/null 2>&1 &\necho $! >%s\n", program, pid), 0o700)
	h.writeMode(t, "stop-front", fmt.Sprintf("#!/bin/sh\nkill $(cat %s)\n", pid), 0o700)
}

// StartFront starts the host's client.
func (h *Host) StartFront(t testing.TB) {
	t.Helper()
	out, err := h.space.command(filepath.Join(h.dir, "start-front")).CombinedOutput()
	require.NoError(t, err, string(out))
}

// FrontRuns reports whether it runs.
func (h *Host) FrontRuns(t testing.TB) bool {
	t.Helper()
	for _, pid := range h.space.processes(t) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.TrimSpace(string(name)) == h.front() {
			return true
		}
	}
	return false
}
