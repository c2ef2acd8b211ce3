package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

func quiet() store.Settings { return store.Settings{LogFile: os.DevNull} }

func startCluster(t *testing.T, config store.ClusterConfig) *store.LocalCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		cluster, err := store.StartCluster(ctx, config)
		// A cluster that is started again has its ports, which another test's may
		// have taken for a moment.
		if errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
		t.Cleanup(cluster.Kill)
		return cluster
	}
}

func etcdClient(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{storetest.AskAgain()}})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// A cluster starts in empty folders, is closed while a watch is open (which
// etcd alone would wait for), and starts again from its folders with the same
// data, addresses and IDs.
func TestClusterRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	config := store.ClusterConfig{DataDir: dir, Members: 3, FreePorts: true, Settings: quiet()}
	cluster := startCluster(t, config)
	client := etcdClient(t, cluster.Endpoints()...)
	_, err := client.Put(t.Context(), "key", "value")
	require.NoError(t, err)
	watch := client.Watch(t.Context(), "key", clientv3.WithRev(1))
	if resp := <-watch; resp.Err() != nil {
		t.Fatal(resp.Err())
	}
	id, endpoints := cluster.Members()[0].ClusterID(), strings.Join(cluster.Endpoints(), ",")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, cluster.Close(ctx))
	for err := range cluster.Err() {
		t.Errorf("closing cleanly reported %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "m1"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, %v; want mode 0700", info.Mode(), err)
	}

	config.Members = 5
	_, err = store.StartCluster(t.Context(), config)
	require.ErrorContains(t, err, "holds a cluster of 3 members, not of 5", "five members asked for where three are")
	config.Members = 1
	_, err = store.StartCluster(t.Context(), config)
	require.ErrorContains(t, err, "holds a cluster of 3 members, not of 1", "one member asked for where three are")
	config.Members, config.FreePorts = 3, false
	cluster = startCluster(t, config)
	if got := strings.Join(cluster.Endpoints(), ","); got != endpoints {
		t.Errorf("started again at %s, was at %s", got, endpoints)
	}
	if got := cluster.Members()[0].ClusterID(); got != id {
		t.Errorf("started again as cluster %x, was %x", got, id)
	}
	resp, err := etcdClient(t, cluster.Endpoints()...).Get(t.Context(), "key")
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "value" {
		t.Errorf("after the restart: %v, %v", resp, err)
	}
}

func TestCluster_Refused_LeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		config store.ClusterConfig
		want   string
	}{
		{"even", store.ClusterConfig{Members: 4}, "use 1, 3 or 5"},
		{"too many", store.ClusterConfig{Members: 7}, "use 1, 3 or 5"},
		{"none", store.ClusterConfig{}, "use 1, 3 or 5"},
		{"ports", store.ClusterConfig{Members: 5, ClientPort: 20000}, "choose a lower one"},
		{"log file", store.ClusterConfig{Members: 1, FreePorts: true, Settings: store.Settings{LogFile: filepath.Join(os.DevNull, "log")}}, "log of member m1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.config.DataDir = filepath.Join(t.TempDir(), "data")
			cluster, err := store.StartCluster(t.Context(), tt.config)
			if err == nil {
				cluster.Kill()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
			if _, err := os.Stat(tt.config.DataDir); !errors.Is(err, os.ErrNotExist) {
				t.Error("a refused start left a directory behind")
			}
		})
	}
}

// Promise 3: a data directory is started as what it is, or not at all.
func TestPromise3ClusterMixedDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(name string, members int) error {
		cluster, err := store.StartCluster(t.Context(), store.ClusterConfig{DataDir: filepath.Join(dir, name), Members: members, FreePorts: true, Settings: quiet()})
		if err == nil {
			cluster.Kill()
		}
		return err
	}
	swap := func(a, b string) {
		t.Helper()
		require.NoError(t, os.Rename(filepath.Join(dir, a), filepath.Join(dir, "kept")))
		require.NoError(t, os.Rename(filepath.Join(dir, b), filepath.Join(dir, a)))
		require.NoError(t, os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, b)))
	}
	for _, name := range []string{"a", "b"} {
		require.NoError(t, start(name, 3))
	}
	swap("a/m2", "b/m2")
	require.ErrorContains(t, start("a", 3), "not of one cluster", "directories of two clusters")
	swap("a/m2", "b/m2")
	swap("a/m2", "a/m3")
	require.ErrorContains(t, start("a", 3), `belongs to member "m3"`, "swapped directories")
	swap("a/m2", "a/m3")
	require.NoError(t, os.Rename(filepath.Join(dir, "a", "m1"), filepath.Join(dir, "a", "away")))
	require.ErrorContains(t, start("a", 3), "a member's data is missing", "m2 and m3 without m1")
	require.ErrorContains(t, start("a", 1), "is not empty", "a new m1 where others are")
	require.ErrorContains(t, start("b/m1", 1), "is not empty", "a member's own directory")

	cluster := startCluster(t, store.ClusterConfig{DataDir: filepath.Join(dir, "b"), Members: 3, FreePorts: true, Settings: quiet()})
	require.ErrorContains(t, start("b", 3), "another process uses it", "started twice")
	cluster.Kill()
}

// Promise 2, on our side of it: members that are killed under load, as the
// demonstration does, neither take the process with them nor lose a write that
// was acknowledged.
func TestPromise2KillUnderLoad(t *testing.T) {
	t.Parallel()
	config := store.ClusterConfig{DataDir: t.TempDir(), Members: 3, FreePorts: true, Settings: quiet()}
	acknowledged := 0
	for round := range 3 {
		cluster := startCluster(t, config)
		var writers []*storetest.Writer
		for i, m := range cluster.Members() {
			writers = append(writers, storetest.StartWriter(t, etcdClient(t, m.Endpoints()...), fmt.Sprintf("/%d/%d/", round, i)))
		}
		for _, w := range writers {
			w.WaitFor(t, 30)
		}
		cluster.Kill()
		cluster = startCluster(t, config)
		client := etcdClient(t, cluster.Endpoints()...)
		for _, w := range writers {
			for _, ack := range w.Stop() {
				acknowledged++
				resp, err := client.Get(t.Context(), ack.Key)
				if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != ack.Value {
					t.Fatalf("round %d: %+v was acknowledged; after the kill: %v, %v", round, ack, resp, err)
				}
			}
		}
		cluster.Kill()
	}
	t.Logf("%d acknowledged writes are all there", acknowledged)
}
