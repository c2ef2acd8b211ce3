package recovertest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// RepositoryKind is where the hosts' shared repository lies.
type RepositoryKind int

// The kinds of repositories.
const (
	NoRepository RepositoryKind = iota
	// OnDisk is a folder that all hosts have, as if it were mounted on each.
	OnDisk
	// OnS3 is a versitygw that hosts reach over their links: a host without its link
	// does not reach it.
	OnS3
)

// openRepository fills in Repository, and the environment that it takes.
func (s *Site) openRepository(t testing.TB) {
	t.Helper()
	switch s.options.Repository {
	case NoRepository:
	case OnDisk:
		s.Repository = "file://" + filepath.Join(s.dir, "repository")
	case OnS3:
		server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
		s.Env = append(s.Env, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
		at := storetest.NewProxy(t, s.Address(), server.Endpoint[len("http://"):])
		s.Repository = server.URLThrough("http://"+at.Addr(), "backups", "etcd", "insecure=true")
	}
}

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
	for _, r := range slices.Backward(s.ranges(t)) {
		if !r.Gap {
			return &r
		}
	}
	return nil
}

// ranges are those of all timelines, gaps among them; none where there is no repository yet.
func (s *Site) ranges(t testing.TB) []walreplay.Range {
	t.Helper()
	e := s.Run(t, "list", "--output", "json", "--repo", s.Repository)
	if e.Code != exitOK {
		return nil
	}
	var list struct {
		Ranges []walreplay.Range `json:"ranges"`
	}
	e.Decode(t, &list)
	return list.Ranges
}

// waitArchived waits until the archive has begun.
func (s *Site) waitArchived(t testing.TB) {
	t.Helper()
	storetest.Eventually(t, "the archive has begun", func() error {
		if s.Archived(t) == nil {
			return errors.New("nothing is archived")
		}
		return nil
	})
}
