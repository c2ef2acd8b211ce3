package engine

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
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
		got := leaseOf(t, replayed(t, empty(t), Options{PersistCheckpoints: test.persist, MinLeaseTTL: 9500 * time.Millisecond},
			logOf(t, 1, version(test.version), grant, checkpoint)))
		if got.RemainingTTL != test.want || got.TTL != 10 {
			t.Errorf("%+v: %d s of %d s remain; want %d of 10", test, got.RemainingTTL, got.TTL, test.want)
		}
	}
}

// Requests carry who asked and the revision of users and roles that he knew:
// the replay refuses what the member refused.
func TestPermissions(t *testing.T) {
	as := func(user string, revision uint64, r *pb.InternalRaftRequest) *pb.InternalRaftRequest {
		r.Header = &pb.RequestHeader{ID: 1, Username: user, AuthRevision: revision}
		return r
	}
	var what []any
	for _, r := range []*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root", HashedPassword: "aGFzaA=="}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "root"}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "u", HashedPassword: "aGFzaA=="}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "r"}},
		{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: []byte("his")}}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "u", Role: "r"}},
		{AuthEnable: &pb.AuthEnableRequest{}},
	} {
		what = append(what, r)
	}
	first := len(what)
	now := uint64(first) // it begins at 1, and turning it on does not count
	what = append(what,
		as("u", now, putOf("his", "permitted")), as("u", now, putOf("other", "denied")), as("u", now-1, putOf("his", "old")),
		as("", 0, putOf("his", "nobody")), as("root", now, putOf("other", "root")),
		as("u", now, &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}}),
		as("u", now, &pb.InternalRaftRequest{Authenticate: &pb.InternalAuthenticateRequest{Name: "u", Password: "wrong"}}),
		as("u", now, &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("other")}}),
	)
	e := open(t, empty(t), Options{})
	var moved []int
	for i, x := range logOf(t, 1, what...) {
		before := e.Revision()
		require.NoError(t, e.Apply(x))
		if e.Revision() != before {
			moved = append(moved, i-first)
		}
	}
	if fmt.Sprint(moved) != "[0 4]" {
		t.Errorf("requests %v were permitted, want the first and the fifth", moved)
	}
	if !e.auth.IsAuthEnabled() {
		t.Error("a user could turn authentication off")
	}
}

// While an alarm is raised, the applier takes what the member's took.
func TestAlarms(t *testing.T) {
	alarm := func(kind pb.AlarmType, action pb.AlarmRequest_AlarmAction) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{MemberID: 1, Alarm: kind, Action: action}}
	}
	remove := &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}}
	for _, test := range []struct {
		kind pb.AlarmType
		want int64 // revision at the end
	}{{pb.AlarmType_NOSPACE, 4}, {pb.AlarmType_CORRUPT, 3}} {
		path := empty(t)
		e := open(t, path, Options{})
		applyAll(t, e, logOf(t, 1, putOf("a", "1"), alarm(test.kind, pb.AlarmRequest_ACTIVATE), putOf("b", "refused")))
		require.NoError(t, e.Close())
		e = open(t, path, Options{}) // the alarm is in the database
		applyAll(t, e, logOf(t, 4, putOf("b", "refused"), grant, remove, alarm(test.kind, pb.AlarmRequest_DEACTIVATE), putOf("c", "3")))
		if e.Revision() != test.want {
			t.Errorf("%s: revision %d, want %d", test.kind, e.Revision(), test.want)
		}
		require.NoError(t, e.Close())
		if c := storetest.ReadContents(t, path); len(c["lease"]) != 0 || len(c["alarm"]) != 0 {
			t.Errorf("%s: %d leases and %d alarms", test.kind, len(c["lease"]), len(c["alarm"]))
		}
	}
}

// A compaction that a member had scheduled and not finished is finished first.
func TestUnfinishedCompaction(t *testing.T) {
	compact := &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 30}}
	var what []any
	for i := range 40 {
		what = append(what, putOf(fmt.Sprint(i%3), fmt.Sprint(i)))
	}
	want := replayed(t, empty(t), Options{}, logOf(t, 1, append(what, compact)...))
	path := empty(t)
	replayed(t, path, Options{}, logOf(t, 1, append(what, nil)...))
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("scheduledCompactRev"), mvcc.RevToBytes(mvcc.Revision{Main: 30}, mvcc.NewRevBytes()))
	})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	e := open(t, path, Options{})
	if e.CompactedRevision() != 30 || e.Revision() != 41 {
		t.Errorf("compacted at %d, revision %d", e.CompactedRevision(), e.Revision())
	}
	require.NoError(t, e.Close())
	expectEqual(t, storetest.ReadContents(t, path), want)
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
