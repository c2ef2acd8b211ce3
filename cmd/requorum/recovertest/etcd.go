package recovertest

import (
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

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
	// Go on arm64: 3.4 wants to be told that this is meant.
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
	deadline := time.Now().Add(2 * time.Minute)
	for _, h := range hosts {
		for {
			err := storetest.Healthy(client, h.ClientURL)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("member %s is not ready after two minutes: %v", h.Name, err)
			}
			time.Sleep(25 * time.Millisecond)
		}
	}
}
