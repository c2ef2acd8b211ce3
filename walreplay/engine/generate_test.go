package engine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// generator makes a log of all kinds of entries: many that are refused, too.
type generator struct {
	*rand.Rand
	t        testing.TB
	what     []any
	revision int64 // about the one that they lead to
	authRev  uint64
	authed   bool
	keys     int    // how many there are
	open     bool   // authentication is never turned on
	version  string // of the cluster
}

// generate is a log of about n entries, from the first of a cluster on.
func generate(t testing.TB, seed uint64, n int) []raftlog.Entry {
	return (&generator{Rand: rand.New(rand.NewPCG(seed, 1)), t: t, keys: 200, version: "3.6.0"}).log(n)
}

func (g *generator) log(n int) []raftlog.Entry {
	g.revision, g.authRev = 1, 1
	for id := range uint64(3) {
		g.change(raftpb.ConfChangeAddNode, id+1, false)
	}
	g.what = append(g.what, nil)
	g.request(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: g.version}})
	for len(g.what) < n {
		g.next()
	}
	return logOf(g.t, 1, g.what...)
}

func (g *generator) request(r *pb.InternalRaftRequest) {
	r.Header = &pb.RequestHeader{ID: g.Uint64()}
	if g.authed {
		r.Header.Username = "root"
		if g.IntN(3) == 0 {
			r.Header.Username = g.user()
		}
		r.Header.AuthRevision = g.authRev - uint64(g.IntN(2))
	}
	g.what = append(g.what, r)
}

func (g *generator) key() []byte  { return fmt.Appendf(nil, "key/%03d", g.IntN(g.keys)) }
func (g *generator) user() string { return fmt.Sprintf("user%d", g.IntN(5)) }
func (g *generator) role() string { return fmt.Sprintf("role%d", g.IntN(5)) }
func (g *generator) lease() int64 { return int64(1 + g.IntN(20)) }

func (g *generator) value() []byte {
	v := make([]byte, g.IntN(300))
	for i := range v {
		v[i] = byte(g.Uint32())
	}
	return v
}

func (g *generator) put() *pb.PutRequest {
	p := &pb.PutRequest{Key: g.key(), Value: g.value(), PrevKv: g.IntN(10) == 0}
	switch g.IntN(10) {
	case 0:
		p.Lease = g.lease()
	case 1:
		p.IgnoreLease = true
	case 2:
		p.IgnoreValue, p.Value = true, nil
	}
	return p
}

func (g *generator) deletion() *pb.DeleteRangeRequest {
	d := &pb.DeleteRangeRequest{Key: g.key(), PrevKv: g.IntN(10) == 0}
	switch g.IntN(8) {
	case 0:
		d.RangeEnd = g.key() // may lie before the key
	case 1:
		d.Key, d.RangeEnd = []byte("key/19"), []byte{0}
	}
	return d
}

func (g *generator) txn(depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range g.IntN(3) {
		c := &pb.Compare{Key: g.key(), Result: pb.Compare_CompareResult(g.IntN(4))}
		switch g.IntN(5) {
		case 0:
			c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: int64(g.IntN(3))}
		case 1:
			c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: g.Int64N(g.revision + 1)}
		case 2:
			c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: g.Int64N(g.revision + 1)}
		case 3:
			c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: g.value()}
		case 4:
			c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: g.lease()}
		}
		if g.IntN(4) == 0 {
			c.RangeEnd = []byte{0}
		}
		t.Compare = append(t.Compare, c)
	}
	t.Success, t.Failure = g.ops(depth), g.ops(depth)
	return t
}

func (g *generator) ops(depth int) []*pb.RequestOp {
	var ops []*pb.RequestOp
	used := map[string]bool{}
	for range g.IntN(4) {
		switch n := g.IntN(5); {
		case n < 2:
			p := g.put()
			if used[string(p.Key)] { // etcd refuses these before they are logged
				continue
			}
			used[string(p.Key)] = true
			ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}})
		case n == 2:
			d := g.deletion()
			if d.RangeEnd != nil || used[string(d.Key)] {
				continue
			}
			used[string(d.Key)] = true
			ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d}})
		case n == 3 && depth > 0:
			ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.txn(depth - 1)}})
		default:
			r := &pb.RangeRequest{Key: g.key()}
			if g.IntN(4) == 0 {
				r.Revision = g.Int64N(g.revision + 2) // may be compacted, or to come
			}
			ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}})
		}
	}
	return ops
}

func (g *generator) next() {
	g.revision++
	switch n := g.IntN(1000); {
	case n < 500:
		g.request(&pb.InternalRaftRequest{Put: g.put()})
	case n < 600:
		g.request(&pb.InternalRaftRequest{DeleteRange: g.deletion()})
	case n < 750:
		g.request(&pb.InternalRaftRequest{Txn: g.txn(2)})
	case n < 800:
		g.request(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: g.lease(), TTL: int64(g.IntN(100))}})
	case n < 830:
		g.request(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: g.lease()}})
	case n < 850:
		g.request(&pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: g.lease(), Remaining_TTL: int64(g.IntN(50))}}}})
	case n < 860:
		g.request(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: g.Int64N(g.revision), Physical: g.IntN(2) == 0}})
	case n < 880:
		alarm := &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType(1 + g.IntN(2)), Action: pb.AlarmRequest_ACTIVATE}
		off := &pb.AlarmRequest{MemberID: 1, Alarm: alarm.Alarm, Action: pb.AlarmRequest_DEACTIVATE}
		g.request(&pb.InternalRaftRequest{Alarm: alarm})
		for range g.IntN(5) {
			g.next()
		}
		g.request(&pb.InternalRaftRequest{Alarm: off})
	case n < 890:
		g.change(raftpb.ConfChangeType(g.IntN(4)), uint64(4+g.IntN(8)), g.IntN(3) == 0) // some voters stay
	case n < 893:
		g.what = append(g.what, nil)
	case n < 896:
		g.request(&pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 1, MemberAttributes: &membershippb.Attributes{Name: "one", ClientUrls: []string{"http://one"}}}})
	case n < 899:
		g.request(&pb.InternalRaftRequest{DowngradeInfoSet: &membershippb.DowngradeInfoSetRequest{Enabled: g.IntN(2) == 0, Ver: "3.6.0"}})
	default:
		g.account()
	}
}

// account makes a request about users and roles.
func (g *generator) account() {
	r := &pb.InternalRaftRequest{}
	hash := base64.StdEncoding.EncodeToString(g.value())
	switch g.IntN(14) {
	case 0, 1:
		r.AuthUserAdd = &pb.AuthUserAddRequest{Name: g.user(), HashedPassword: hash, Options: &authpb.UserAddOptions{NoPassword: g.IntN(2) == 0}}
	case 2:
		r.AuthUserDelete = &pb.AuthUserDeleteRequest{Name: g.user()}
	case 3:
		r.AuthUserChangePassword = &pb.AuthUserChangePasswordRequest{Name: g.user(), HashedPassword: hash}
	case 4, 5:
		r.AuthUserGrantRole = &pb.AuthUserGrantRoleRequest{User: g.user(), Role: g.role()}
	case 6:
		r.AuthUserRevokeRole = &pb.AuthUserRevokeRoleRequest{Name: g.user(), Role: g.role()}
	case 7, 8:
		r.AuthRoleAdd = &pb.AuthRoleAddRequest{Name: g.role()}
	case 9:
		r.AuthRoleDelete = &pb.AuthRoleDeleteRequest{Role: g.role()}
	case 10, 11:
		r.AuthRoleGrantPermission = &pb.AuthRoleGrantPermissionRequest{Name: g.role(), Perm: &authpb.Permission{PermType: authpb.Permission_Type(g.IntN(3)), Key: []byte("key/"), RangeEnd: g.key()}}
	case 12:
		r.AuthRoleRevokePermission = &pb.AuthRoleRevokePermissionRequest{Role: g.role(), Key: []byte("key/"), RangeEnd: g.key()}
	case 13:
		if g.open {
			return
		}
		if g.authed {
			r.AuthDisable = &pb.AuthDisableRequest{}
			g.request(r)
			g.authed = false
			return
		}
		for _, r := range []*pb.InternalRaftRequest{
			{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root", HashedPassword: hash, Options: &authpb.UserAddOptions{}}},
			{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "root"}},
			{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}},
			{AuthEnable: &pb.AuthEnableRequest{}},
		} {
			g.request(r)
			g.authRev++
		}
		g.authed = true
		return
	}
	g.request(r)
	g.authRev++
}

func (g *generator) change(kind raftpb.ConfChangeType, id uint64, promote bool) {
	g.what = append(g.what, change(g.t, kind, id, promote))
}

func change(t testing.TB, kind raftpb.ConfChangeType, id uint64, promote bool) *raftpb.ConfChange {
	t.Helper()
	m := membership.Member{ID: types.ID(id), RaftAttributes: membership.RaftAttributes{
		PeerURLs: []string{fmt.Sprintf("http://%d", id)}, IsLearner: kind == raftpb.ConfChangeAddLearnerNode,
	}}
	var context any = membership.ConfigChangeContext{Member: m, IsPromote: promote}
	switch kind {
	case raftpb.ConfChangeUpdateNode:
		m.PeerURLs = []string{fmt.Sprintf("http://%d/new", id)}
		context = m
	case raftpb.ConfChangeRemoveNode:
		return &raftpb.ConfChange{Type: kind.Enum(), NodeId: &id}
	default:
	}
	data, err := json.Marshal(context)
	require.NoError(t, err)
	return &raftpb.ConfChange{Type: kind.Enum(), NodeId: &id, Context: data}
}
