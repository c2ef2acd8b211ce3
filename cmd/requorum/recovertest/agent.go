package recovertest

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// agentConfig archives every second. Full snapshots are taken on demand alone:
// what is recovered otherwise would depend on the minute.
func (h *Host) agentConfig() string {
	return fmt.Sprintf(`
name: %s
etcd: {endpoints: [%s]}
member: {data-dir: %q}
repository: {url: %q, retry-for: 2s}
archive: {interval: 1s, takeover: 2s, spool-dir: %q}
resources: {scratch-dir: %q}
listen: {address: "127.0.0.1:2390"}
`, h.Name, h.ClientURL, h.DataDir, h.site.Repository, filepath.Join(h.dir, "spool"), filepath.Join(h.dir, "scratch"))
}

// StartAgent starts `requorum agent`.
func (h *Host) StartAgent(t testing.TB) {
	t.Helper()
	if h.agent.Running() {
		t.Fatalf("the agent of %s runs already", h.Name)
	}
	h.agent = h.space.start(t, filepath.Join(h.dir, "agent.log"), h.hostEnv(), storetest.Requorum(t),
		"agent", "--config", filepath.Join(h.dir, "agent.yaml"))
}

// KillAgent is kill -9 of the agent.
func (h *Host) KillAgent() { h.agent.Kill() }

// Archived is the range of points that the repository can be restored to; nil where
// there is none as yet.
func (s *Site) Archived(t testing.TB) *walreplay.Range {
	t.Helper()
	e := s.Run(t, "list", "--output", "json", "--repo", s.Repository)
	if e.Code != 0 {
		return nil
	}
	var list struct {
		Ranges []walreplay.Range `json:"ranges"`
	}
	e.Decode(t, &list)
	for _, r := range slices.Backward(list.Ranges) {
		if !r.Gap {
			return &r
		}
	}
	return nil
}

// waitArchived waits until the archive has begun.
func (s *Site) waitArchived(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); s.Archived(t) == nil; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is archived after five minutes; the end of an agent's log:\n%s", storetest.Tail(filepath.Join(s.Host(0).dir, "agent.log"), 20))
		}
	}
}
