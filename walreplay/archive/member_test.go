package archive

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
)

func etcdClient(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func dial(t *testing.T, endpoints ...string) *client.Client {
	t.Helper()
	client, err := client.Dial(t.Context(), client.Config{Endpoints: endpoints})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// Promise 5: a live archiver proposes nothing, neither at its start nor while it
// runs: on an idle cluster the raft index does not move.
func TestPromise5ProposesNothing(t *testing.T) {
	t.Parallel()
	cluster, err := store.StartCluster(t.Context(), store.ClusterConfig{DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull}})
	require.NoError(t, err)
	t.Cleanup(cluster.Kill)
	client := etcdClient(t, cluster.Endpoints()...)
	_, err = client.Put(t.Context(), "key", "value")
	require.NoError(t, err)
	index := func() (raft uint64, storage string) {
		t.Helper()
		status, err := client.Status(t.Context(), cluster.Endpoints()[0])
		require.NoError(t, err)
		return status.RaftIndex, status.StorageVersion
	}
	// The member's own first proposals are over when it is quiet for a while, and has
	// a storage version: that follows the cluster's, which may come 4 s after a start.
	before, storage := index()
	for quiet := time.Now(); time.Since(quiet) < time.Second || storage == ""; time.Sleep(20 * time.Millisecond) {
		var now uint64
		if now, storage = index(); now != before {
			before, quiet = now, time.Now()
		}
	}
	sink := sinktest.NewMemory()
	const interval = 100 * time.Millisecond
	for round := range 2 { // the second one compares, and takes a hash
		a, err := New(Config{
			Client: dial(t, cluster.Endpoints()...), DataDir: cluster.Members()[0].DataDir(), Sink: sink, SpoolDir: t.TempDir(),
			Interval: interval, Alive: interval, Takeover: 2 * interval, Tool: "test",
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		busy := func() bool { s := a.State(); return s.Archived >= before && s.Requests.Puts > 0 }
		for began := time.Now(); !busy() || time.Since(began) < 15*interval; time.Sleep(interval) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("round %d: nothing was archived, or nothing put: %+v", round, a.State())
			}
		}
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, a.Once(t.Context()))
	}
	if after, _ := index(); after != before {
		t.Errorf("the raft index moved from %d to %d", before, after)
	}
}
