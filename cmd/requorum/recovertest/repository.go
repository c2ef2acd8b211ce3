package recovertest

import (
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
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
