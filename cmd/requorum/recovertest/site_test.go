package recovertest

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// A host without its link is cut off from the others and from the operator, and
// comes back; one that is down runs nothing. Orders reach `requorum host`,
// which stops and starts the member that the harness started.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("the hosts of all other tests are such a site")
	}
	t.Parallel()
	s := Start(t, Options{Version: "3.7"})
	m1, m3 := s.Host(0), s.Host(2)

	m1.LinkDown(t)
	if conn, err := net.DialTimeout("tcp", m1.Address+":2380", 300*time.Millisecond); err == nil {
		conn.Close()
		t.Error("a host without its link was reached")
	}
	s.WaitReady(t, s.Host(1)) // by a read through the quorum
	m1.LinkUp(t)
	s.WaitReady(t, s.Members()...)

	m3.Down(t)
	if running := m3.space.processes(t); len(running) > 0 {
		t.Errorf("processes %v run on a host that is down", running)
	}
	m3.Up(t)
	m3.StartEtcd(t)
	s.WaitReady(t, s.Members()...)

	c := m1.ControlClient(t, "recovery-1")
	m, err := c.Member(t.Context())
	require.NoError(t, err)
	if !m.Runs || m.Name != "m1" {
		t.Errorf("m1 is told as %+v", m)
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if running := m1.Etcd(t); len(running) > 0 {
		t.Errorf("m1 was stopped, and process %v runs", running)
	}
	if _, err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m1.KillControl(t)
	if len(m1.Etcd(t)) != 1 {
		t.Error("the member that the host process started went with it")
	}
	s.WaitReady(t, s.Members()...)

	s.KillAll(t)
	for _, h := range s.Hosts() {
		if running := h.Etcd(t); len(running) > 0 {
			t.Errorf("process %v of %s runs after all were killed", running, h.Name)
		}
	}
	s.Lose(t, m1)
	if exists(filepath.Join(m1.DataDir, "member")) {
		t.Error("a lost disk still has the member's data")
	}
}

// What was acknowledged is known, and found to be missing where it is.
func TestLightLoad(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	called := 0
	l := LightLoad(t, "/a/", Writes(40), func() { called++ }, c.Client(t), c.Client(t))
	if got := len(l.Acks()); got < 40 || called != 1 {
		t.Errorf("%d acknowledged, and the end was told %d times", got, called)
	}
	client := c.Client(t)
	if missing := l.Missing(t, "/a/", client); len(missing) != 0 {
		t.Errorf("missing: %v", missing)
	}
	keys := slices.Collect(maps.Keys(l.Acks())) // one client may have written them all
	if _, err := client.Put(t.Context(), keys[0], "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), keys[1]); err != nil {
		t.Fatal(err)
	}
	if missing := l.Missing(t, "/a/", client); len(missing) != 2 {
		t.Errorf("two keys were changed, and %d are told: %v", len(missing), missing)
	}
}

// What a test binary that was killed has left goes when the next site begins,
// and what another one has does not.
func TestLeftovers(t *testing.T) {
	needNetwork(t)
	require.NoError(t, os.MkdirAll(locks(), 0o700))
	left, lock := takeNumber(t)
	addBridge(t, left)
	space := addHost(t, left, 1)
	p := space.start(t, filepath.Join(t.TempDir(), "log"), os.Environ(), "sleep", "1000")
	other, otherLock := takeNumber(t)
	if p.ended() || other == left {
		t.Fatalf("number %d was taken from its owner", left)
	}
	lock.Close() // as the kernel does for a process that is killed
	removeLeftovers(t)
	<-p.done
	if exists(filepath.Join(netnsDir, string(space))) || exists("/sys/class/net/"+bridgeName(left)) {
		t.Errorf("namespace or bridge of number %d is still there", left)
	}
	otherLock.Close()
}
