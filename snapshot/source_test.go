package snapshot_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// source is a bundled cluster with something in it.
type source struct {
	cluster *store.LocalCluster
	client  *client.Client
	kv      *clientv3.Client
}

func newSource(t *testing.T, members int) *source {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: t.TempDir(), Members: members, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull},
	})
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	s := &source{cluster: c}
	s.client, err = client.Dial(ctx, client.Config{Endpoints: c.Endpoints()})
	require.NoError(t, err)
	t.Cleanup(func() { s.client.Close() })
	s.kv, err = clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialOptions: []grpc.DialOption{storetest.AskAgain()}})
	require.NoError(t, err)
	t.Cleanup(func() { s.kv.Close() })
	s.put(t, 10)
	return s
}

func (s *source) put(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		_, err := s.kv.Put(t.Context(), fmt.Sprintf("key%03d", i), strings.Repeat("v", 1000))
		require.NoError(t, err)
	}
}

func (s *source) take(t *testing.T, req snapshot.Request) (*snapshot.Result, error) {
	t.Helper()
	req.Client, req.Tool = s.client, "test"
	return snapshot.Take(t.Context(), req)
}

// newTaken is a source of one member, and a repository with a full snapshot of it.
func newTaken(t *testing.T) (*source, sinks.Sink, snapshot.Manifest) {
	t.Helper()
	s, d := newSource(t, 1), newDisk(t)
	r, err := s.take(t, snapshot.Request{Sink: d})
	require.NoError(t, err)
	return s, d, *r.Manifest
}

func newDisk(t *testing.T) sinks.Sink {
	t.Helper()
	d, err := disk.New(filepath.Join(t.TempDir(), "repo"))
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func catalogOf(t *testing.T, s sinks.Sink) *snapshot.Catalog {
	t.Helper()
	repo, err := repository.Open(t.Context(), s)
	require.NoError(t, err)
	c, err := snapshot.ReadCatalog(t.Context(), repo)
	require.NoError(t, err)
	return c
}

// snapshotObjects counts the objects below full/, manifests and all.
func snapshotObjects(t *testing.T, s sinks.Sink) (n int) {
	t.Helper()
	for o, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		if strings.Contains(o.Name, "/full/") {
			n++
		}
	}
	return n
}

// restorable reads a backup whole, with all checks.
func restorable(t *testing.T, s sinks.Sink, m *snapshot.Manifest, identities ...age.Identity) {
	t.Helper()
	repo, err := repository.Open(t.Context(), s)
	require.NoError(t, err)
	image := snapshot.OpenStored(repo, m, identities...)
	r, err := image.Open(t.Context())
	require.NoError(t, err)
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != image.Size() {
		t.Fatalf("read %d of %d bytes: %v", n, image.Size(), err)
	}
}
