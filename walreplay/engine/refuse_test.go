package engine

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/pkg/v3/schedule"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

func putOf(key, value string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

// strange adds a field that no version knows to what a message holds.
func strange(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 1))
}

// Promise 2: what is not known is refused by name, and so is what would have ended a
// member's process; the entry applied last is reported, and the engine closes.
func TestPromise2RefusesWhatItDoesNotKnow(t *testing.T) {
	field := func(n protowire.Number, value []byte) []byte {
		head := protowire.AppendBytes(protowire.AppendTag(nil, fieldHeader, protowire.BytesType), []byte{8, 1})
		return protowire.AppendBytes(protowire.AppendTag(head, n, protowire.BytesType), value)
	}
	strangePut := putOf("k", "v")
	strange(strangePut.Put)
	strangeHeader := putOf("k", "v")
	strangeHeader.Header = &pb.RequestHeader{ID: 1}
	strange(strangeHeader.Header)
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}}
	inner := &pb.TxnRequest{Success: []*pb.RequestOp{op}}
	strange(op.GetRequestPut())
	nested := &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}}}}
	strangeGrant := &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "r"}}
	strange(strangeGrant.AuthRoleGrantPermission)
	deleteThenKeep := &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a")}}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), IgnoreValue: true}}},
	}}
	id := uint64(7)
	for name, test := range map[string]struct {
		what  any
		kind  string
		newer bool
	}{
		"a new kind":                {field(1400, nil), "unknown", true},
		"two requests in one":       {append(field(4, nil), field(5, nil)...), "unknown", true},
		"no request":                {[]byte{8, 1}, "unknown", true},
		"a new field of put":        {strangePut, "put", true},
		"a new field of the header": {strangeHeader, "put", true},
		"a new field deep in a txn": {&pb.InternalRaftRequest{Txn: nested}, "txn", true},
		"a new field of a grant":    {strangeGrant, "auth-role-grant-permission", true},
		"a new comparison":          {&pb.InternalRaftRequest{Txn: &pb.TxnRequest{Compare: []*pb.Compare{{Result: 9}}}}, "txn", true},
		"a new alarm":               {&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Alarm: 9}}, "alarm", true},
		"a new method of v2":        {bareV2("PATCH", "/1/x", "", false), "unknown", true},
		"no protobuf":               {[]byte{0xff, 0xff}, "unknown", false},
		"no put":                    {field(4, []byte{0xff}), "put", false},
		"no header":                 {[]byte{34, 0}, "put", false},
		"a new membership change":   {&raftpb.ConfChange{Type: raftpb.ConfChangeType(9).Enum(), NodeId: &id}, "conf-change", true},
		"a change without a member": {&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &id}, "conf-change", false},
		"no cluster version":        {&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "x"}}, "cluster-version-set", false},
		"a newer cluster":           {&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "9.9.0"}}, "cluster-version-set", false},
		"an unknown member":         {&pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 9, MemberAttributes: &membershippb.Attributes{}}}, "cluster-member-attr-set", false},
		"attributes of nothing":     {&pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 9}}, "cluster-member-attr-set", false},
		"a panic with locks held":   {&pb.InternalRaftRequest{Txn: deleteThenKeep}, "txn", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, empty(t), Options{})
			applyAll(t, e, logOf(t, 1, putOf("a", "1"), putOf("b", "2")))
			bad := logOf(t, 3, test.what)[0]
			err := e.Apply(bad)
			var entry *EntryError
			if !errors.As(err, &entry) || entry.Index != 3 || entry.Kind != test.kind || errors.Is(err, ErrNewer) != test.newer {
				t.Fatalf("error %v, want one of a %s entry 3, ErrNewer: %v", err, test.kind, test.newer)
			}
			if test.newer && !strings.Contains(err.Error(), "newer requorum") {
				t.Errorf("%q does not say what to do", err)
			}
			if again := e.Apply(logOf(t, 3, nil)[0]); !errors.Is(again, err) {
				t.Errorf("applying after that: %v", again)
			}
			if index, _ := e.Applied(); index != 2 || e.Revision() != 3 {
				t.Errorf("it reports index %d and revision %d, want those before the entry", index, e.Revision())
			}
			require.NoError(t, e.Close())
		})
	}
	for _, kind := range []raftpb.EntryType{raftpb.EntryConfChangeV2, math.MaxInt32} {
		err := open(t, empty(t), Options{}).Apply(raftlog.Entry{Index: 1, Term: 1, Type: kind})
		var entry *EntryError
		if !errors.As(err, &entry) || entry.Kind != KindUnknown || !errors.Is(err, ErrNewer) {
			t.Errorf("entry of type %d: %v", kind, err)
		}
	}
}

// A panic in a goroutine of etcd's own, where a compaction runs, is an error
// too, and whoever waits for it learns of it.
func TestPanicOfACompaction(t *testing.T) {
	r := &Engine{broken: make(chan struct{})}
	s := schedule.NewFIFOScheduler(newLogger(nil, r))
	s.Schedule(schedule.NewJob("compaction", func(context.Context) { panic(errors.New("a page is damaged")) }))
	done := make(chan error)
	go func() { done <- r.wait(make(chan struct{})) }()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "a page is damaged")
	case <-time.After(time.Minute):
		t.Fatal("nobody heard of it")
	}
}

// Promise 4: the entries follow each other, and one moves the revision once.
func TestPromise4Order(t *testing.T) {
	path := empty(t)
	e := open(t, path, Options{})
	entries := logOf(t, 1, putOf("a", "1"), putOf("b", "2"), putOf("c", "3"))
	applyAll(t, e, entries[:1])
	for _, wrong := range []raftlog.Entry{entries[0], entries[2]} {
		var order *OrderError
		if err := e.Apply(wrong); !errors.As(err, &order) || order.Applied != 1 || order.Index != wrong.Index {
			t.Errorf("%s after entry 1: %v", wrong, err)
		}
	}
	applyAll(t, e, entries[1:])
	if e.Revision() != 4 {
		t.Errorf("revision %d, want 4", e.Revision())
	}
	e.revision-- // as if something else had written, too
	var entry *EntryError
	if err := e.Apply(logOf(t, 4, putOf("d", "4"))[0]); !errors.As(err, &entry) || !strings.Contains(err.Error(), "from revision 3 to 5") {
		t.Errorf("two revisions in an entry: %v", err)
	}
}
