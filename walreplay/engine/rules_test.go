package engine

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// With authentication on, each version permits what it permitted: the list says
// from which patch on a request is decided the other way.
func TestRulesOfVersions(t *testing.T) {
	perm := func(kind authpb.Permission_Type, key string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: &authpb.Permission{PermType: kind, Key: []byte(key)}}}
	}
	put := func(p *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	txn := func(op *pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Success: []*pb.RequestOp{op}} }
	nested := func(op *pb.RequestOp) *pb.TxnRequest {
		return txn(&pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn(op)}})
	}
	leased := putOf("theirs", "v")
	leased.Put.Lease = 5
	setup := []*pb.InternalRaftRequest{
		grant, leased,
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root", HashedPassword: "aGFzaA=="}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "root"}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "u", HashedPassword: "aGFzaA=="}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "r"}},
		perm(authpb.WRITE, "writes"), perm(authpb.READ, "reads"),
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "u", Role: "r"}},
		{AuthEnable: &pb.AuthEnableRequest{}},
	}
	const now = 9
	const never, always = "3.9.0", "3.5.0"
	for name, test := range map[string]struct {
		user     string
		revision uint64
		full     bool // no space is left
		r        *pb.InternalRaftRequest
		// The first versions that permit or refuse it. Before, they did not.
		permits, refuses []string
	}{
		"a revoke by an old root": {"root", now - 1, false, &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 5}}, []string{"3.5.10", "3.6.0"}, nil},
		"a put in a nested txn":   {"u", now, false, &pb.InternalRaftRequest{Txn: nested(put(&pb.PutRequest{Key: []byte("theirs")}))}, nil, []string{"3.5.28", "3.6.9"}},
		"a put that reads": {"u", now, false, &pb.InternalRaftRequest{Txn: txn(put(&pb.PutRequest{Key: []byte("writes"), PrevKv: true}))},
			nil, []string{"3.5.30", "3.6.11"}},
		"a put with others' lease": {"u", now, false, &pb.InternalRaftRequest{Txn: txn(put(&pb.PutRequest{Key: []byte("writes"), Lease: 5}))},
			nil, []string{"3.5.30", "3.6.11"}},
		"a nested put with others' lease": {"u", now, false, &pb.InternalRaftRequest{Txn: nested(put(&pb.PutRequest{Key: []byte("writes"), Lease: 5}))},
			nil, []string{"3.5.30", "3.6.11"}},
		"a permitted txn":                      {"u", now, false, &pb.InternalRaftRequest{Txn: nested(put(&pb.PutRequest{Key: []byte("writes")}))}, []string{always}, nil},
		"an old txn":                           {"u", now - 1, false, &pb.InternalRaftRequest{Txn: txn(put(&pb.PutRequest{Key: []byte("writes")}))}, nil, []string{always}},
		"a forbidden put":                      {"u", now, false, &pb.InternalRaftRequest{Txn: txn(put(&pb.PutRequest{Key: []byte("reads")}))}, nil, []string{always}},
		"a nested put without space":           {"root", now, true, &pb.InternalRaftRequest{Txn: nested(put(&pb.PutRequest{Key: []byte("writes")}))}, nil, []string{"3.5.33", "3.6.14", "3.7.1"}},
		"a forbidden nested put without space": {"u", now, true, &pb.InternalRaftRequest{Txn: nested(put(&pb.PutRequest{Key: []byte("theirs")}))}, nil, []string{"3.5.28", "3.6.9"}},
		"a nested put without lease or space":  {"root", now, true, &pb.InternalRaftRequest{Txn: nested(put(&pb.PutRequest{Key: []byte("writes"), Lease: 7}))}, nil, []string{always}},
		"a put without space":                  {"root", now, true, &pb.InternalRaftRequest{Txn: txn(put(&pb.PutRequest{Key: []byte("writes")}))}, nil, []string{always}},
		"a forbidden txn's compare": {"u", now, false, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("writes")}}, Success: []*pb.RequestOp{put(&pb.PutRequest{Key: []byte("writes")})}}}, nil, []string{always}},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(version string, want bool) {
				t.Helper()
				var what []any
				for _, r := range setup {
					what = append(what, r)
				}
				if test.full {
					what = append(what, &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType_NOSPACE, Action: pb.AlarmRequest_ACTIVATE}})
				}
				test.r.Header = &pb.RequestHeader{ID: 1, Username: test.user, AuthRevision: test.revision}
				entries := logOf(t, 1, append(what, test.r)...)
				engines := []Replayer{open(t, empty(t), Options{SourceSettings: SourceSettings{SourceVersion: version}})}
				if version != never {
					b, err := OpenBulk(t.Context(), empty(t), filepath.Join(t.TempDir(), "out"), Options{SourceSettings: SourceSettings{SourceVersion: version}})
					require.NoError(t, err)
					defer b.Close()
					engines = append(engines, b)
				}
				for _, e := range engines {
					applyAll(t, e, entries[:len(what)])
					before := e.Revision()
					applyAll(t, e, entries[len(what):])
					if permitted := e.Revision() != before; permitted != want {
						t.Errorf("%T: by the rules of %q permitted: %v, want %v", e, version, permitted, want)
					}
				}
			}
			for _, first := range append(test.permits, test.refuses...) {
				permits := test.permits != nil
				check(first, permits)
				var minor, patch int
				_, err := fmt.Sscanf(first, "3.%d.%d", &minor, &patch)
				require.NoError(t, err)
				if patch > 0 {
					check(fmt.Sprintf("3.%d.%d", minor, patch-1), !permits)
				}
			}
			check("", test.permits != nil)
			check("3.7.1", test.permits != nil)
			check(never, test.permits != nil)
		})
	}
	for _, bad := range []string{"new", "4.0.0", "3.4.44"} {
		_, err := Open(t.Context(), empty(t), Options{SourceSettings: SourceSettings{SourceVersion: bad}})
		require.Error(t, err, "source version %q was taken", bad)
	}
}
