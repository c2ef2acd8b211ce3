package recovertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

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

// LinkUp ends a LinkDown.
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

// Up ends a Down: the link comes back. Its member does as with a
// unit that is enabled only if the test calls StartEtcd.
func (h *Host) Up(t testing.TB) {
	t.Helper()
	h.LinkUp(t)
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
