package recovertest

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
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
		at := forward(t, s.Address(), server.Endpoint[len("http://"):])
		s.Repository = server.URLThrough("http://"+at, "backups", "etcd", "insecure=true")
	}
}

// forward listens at an address of this machine and forwards to a server on
// loopback, until the test ends.
func forward(t testing.TB, address, to string) (listens string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	require.NoError(t, err)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			go join(in, to) // ends with the server
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// join copies in both directions until both have ended.
func join(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return // whoever asked sees it
	}
	defer out.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // it ends with either side
			if c, ok := way[1].(*net.TCPConn); ok {
				_ = c.CloseWrite()
			}
		})
	}
	both.Wait()
}
