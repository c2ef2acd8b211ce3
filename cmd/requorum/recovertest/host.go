package recovertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Host is a machine: a network namespace, a folder as its disk, and processes.
type Host struct {
	Name      string // of its member
	Address   string
	PeerURL   string
	ClientURL string
	Control   string // host:port of its control process
	DataDir   string

	site    *Site
	number  int
	dir     string
	space   namespace
	control *process
	agent   *process
}

func (s *Site) addHost(t testing.TB, n int) *Host {
	t.Helper()
	a := address(s.number, n)
	h := &Host{
		Name: fmt.Sprint("m", n), Address: a, Control: a + ":2391",
		PeerURL: "http://" + a + ":2380", ClientURL: "http://" + a + ":2379",
		DataDir: s.path(n, "etcd"),
		site:    s, number: n, dir: s.path(n), space: addHost(t, s.number, n),
	}
	for _, dir := range []string{h.dir, h.StateDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// configure writes what the host's processes read, once all hosts are known.
func (h *Host) configure(t testing.TB) {
	t.Helper()
	cert, key := h.site.authority.IssueHost(t, "host-"+h.Name, time.Hour, net.ParseIP(h.Address), protocol.Copy.Role())
	h.write(t, "control.yaml", h.controlConfig(t, cert, key))
	if h.site.Repository != "" {
		h.write(t, "agent.yaml", h.agentConfig())
	}
}

func (h *Host) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// StateDir is the control process's: its journal and its audit file.
func (h *Host) StateDir() string { return filepath.Join(h.dir, "state") }

// LinkDown pulls the host's cable, LinkUp plugs it in: the processes stay.
func (h *Host) LinkDown(t testing.TB) {
	t.Helper()
	ip(t, "link", "set", cable(h.site.number, h.number), "down")
}

// LinkUp ends a LinkDown.
func (h *Host) LinkUp(t testing.TB) {
	t.Helper()
	ip(t, "link", "set", cable(h.site.number, h.number), "up")
}

// Down is a host without power: nothing runs, nothing answers. Its disk stays.
func (h *Host) Down(t testing.TB) {
	t.Helper()
	h.LinkDown(t)
	h.space.killAll(t)
	h.control.kill()
	h.agent.kill()
}

// Up ends a Down: link and control process come back. Its member does as with a
// unit that is enabled only if the test calls StartEtcd.
func (h *Host) Up(t testing.TB) {
	t.Helper()
	h.LinkUp(t)
	h.StartControl(t)
	h.WaitControl(t)
}

// DiskLost empties the disk: data, and what the processes remember. The
// configuration is written anew, as for a host that is set up again.
func (h *Host) DiskLost(t testing.TB) {
	t.Helper()
	if running := h.space.processes(t); len(running) > 0 {
		t.Fatalf("processes %v of host %s still run on the disk", running, h.Name)
	}
	for _, name := range []string{"etcd", "state", "spool", "scratch"} {
		if err := os.RemoveAll(filepath.Join(h.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(h.StateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
}
