package engine

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/storetest"
)

// leaseOf is what the database holds of lease 5.
func leaseOf(t *testing.T, c contents) *leasepb.Lease {
	t.Helper()
	l := &leasepb.Lease{}
	row, ok := c["lease"]["\x00\x00\x00\x00\x00\x00\x00\x05"]
	if !ok {
		t.Fatal("the lease is gone")
	}
	require.NoError(t, proto.Unmarshal(row, l))
	return l
}

var grant = &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 5, TTL: 1}}

// Promise 3: a lease outlives any time that a replay takes.
func TestPromise3TimeStandsStill(t *testing.T) {
	path := empty(t)
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(t.Context(), path, Options{})
		require.NoError(t, err)
		leased := putOf("a", "1")
		leased.Put.Lease = 5
		applyAll(t, e, logOf(t, 1, grant, leased))
		time.Sleep(time.Hour)
		applyAll(t, e, logOf(t, 3, putOf("b", "1")))
		time.Sleep(time.Hour)
		require.NoError(t, e.Close())
	})
	c := storetest.ReadContents(t, path)
	if ttl := leaseOf(t, c).TTL; ttl != 2 || len(c["key"]) != 2 {
		t.Errorf("the lease has %d s, and there are %d rows; want 2 and 2", ttl, len(c["key"]))
	}
}

// Promise 3: what a checkpoint says stays where members keep it.
func TestPromise3Checkpoints(t *testing.T) {
	version := func(v string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: v}}
	}
	checkpoint := &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 5, Remaining_TTL: 77}, {ID: 6, Remaining_TTL: 1}}}}
	for _, test := range []struct {
		version string
		persist bool
		want    int64
	}{{"3.5.0", false, 0}, {"3.5.0", true, 77}, {"3.6.0", false, 77}, {"3.7.0", false, 77}} {
		got := leaseOf(t, replayed(t, empty(t), Options{SourceSettings: SourceSettings{PersistCheckpoints: test.persist, MinLeaseTTL: 9500 * time.Millisecond}},
			logOf(t, 1, version(test.version), grant, checkpoint)))
		if got.RemainingTTL != test.want || got.TTL != 10 {
			t.Errorf("%+v: %d s of %d s remain; want %d of 10", test, got.RemainingTTL, got.TTL, test.want)
		}
	}
}

// etcd keeps the last store for its metrics; Close sees to it that this costs
// next to nothing.
func TestCloseFreesTheIndex(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var what []any
	for i := range 50_000 {
		what = append(what, putOf(fmt.Sprintf("a rather long key, so that it is seen/%09d", i), "v"))
	}
	entries := logOf(t, 1, what...)
	before := heap()
	e, err := Open(t.Context(), empty(t), Options{})
	require.NoError(t, err)
	applyAll(t, e, entries)
	held := heap() - before
	require.NoError(t, e.Close())
	if left := heap() - before; held < 8<<20 || left > held/4 {
		t.Errorf("%d bytes were held, %d are after Close", held, left)
	}
	runtime.KeepAlive(entries)
	runtime.KeepAlive(what)
}
