package recovertest

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/requorum/requorum/cmd/requorum/binarytest"
	"github.com/requorum/requorum/schedule/control/client"
)

func (h *Host) controlConfig(t testing.TB, cert, key string) string {
	t.Helper()
	command, err := json.Marshal(h.etcdCommand()) // YAML reads it
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
listen: {address: %q, cert: %q, key: %q, client-ca: %q}
member:
  name: %s
  data-dir: %q
  kind: store
  store: {command: %s, log-file: %q}
  stop-timeout: 30s
  start-timeout: 30s
state-dir: %q
`, h.Control, cert, key, h.site.authority.CA, h.Name, h.DataDir, command, h.EtcdLog(), h.StateDir())
	if h.site.Repository != "" {
		text += fmt.Sprintf("repositories: [%q]\n", h.site.Repository)
	}
	return text
}

// StartControl starts `requorum agent control`, with env beside the host's
// environment. It does not wait: see WaitControl.
func (h *Host) StartControl(t testing.TB, env ...string) {
	t.Helper()
	if !h.control.ended() {
		t.Fatalf("the control process of %s runs already", h.Name)
	}
	h.control = h.space.start(t, filepath.Join(h.dir, "control.log"), append(h.hostEnv(), env...), binarytest.Path(t),
		"agent", "control", "--config", filepath.Join(h.dir, "control.yaml"))
}

// KillControl is kill -9 of the control process; the member that it started stays.
func (h *Host) KillControl() { h.control.kill() }

// WaitControl waits until the control process listens.
func (h *Host) WaitControl(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", h.Control, time.Second)
		if err == nil {
			conn.Close()
			return
		}
		if h.control.ended() || time.Now().After(deadline) {
			t.Fatalf("the control process of %s does not listen: %v; end of %s", h.Name, err, tail(filepath.Join(h.dir, "control.log"), 20))
		}
	}
}

// ControlClient gives orders to the control process, for a run, with all roles
// unless some are named. It ends with the test.
func (h *Host) ControlClient(t testing.TB, run string, roles ...string) *client.Client {
	t.Helper()
	ca, cert, key := h.site.Credentials(t, "operator-of-"+h.Name, roles...)
	c, err := client.New(client.Options{Address: h.Control, Member: h.Name, Run: run, CA: ca, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
