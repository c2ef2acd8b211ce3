package sources

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

type log struct {
	t     *testing.T
	state Membership
	index uint64
	last  MembershipChange
}

func (l *log) apply(kind raftpb.EntryType, m proto.Message) {
	l.t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(l.t, err)
	l.raw(kind, data)
}

func (l *log) raw(kind raftpb.EntryType, data []byte) {
	l.t.Helper()
	l.index++
	var err error
	l.last, err = l.state.Apply(raftlog.Entry{Index: l.index, Term: 1, Type: kind, Data: data})
	require.NoError(l.t, err)
}

// change is what a request of etcd asks for, or with request 0 what no request did.
func (l *log) change(kind raftpb.ConfChangeType, id, request uint64, promote bool) {
	l.t.Helper()
	about, err := json.Marshal(map[string]any{"id": id, "peerURLs": []string{fmt.Sprint("http://h", id, ":2380")}, "isPromote": promote})
	require.NoError(l.t, err)
	l.apply(raftpb.EntryConfChange, &raftpb.ConfChange{Id: &request, Type: kind.Enum(), NodeId: &id, Context: about})
}

func (l *log) want(want string) {
	l.t.Helper()
	var all []string
	for _, m := range l.state.Members {
		text := fmt.Sprintf("%d %s %v %v", uint64(m.ID), m.Name, m.PeerURLs, m.ClientURLs)
		if m.IsLearner {
			text += " learner"
		}
		all = append(all, text)
	}
	if got := strings.Join(all, "; "); got != want {
		l.t.Errorf("after entry %d: %s, want %s", l.index, got, want)
	}
}

// The members are followed as etcd itself follows them, whichever version wrote
// the log: names and client URLs come as requests of the v2 API, bare or wrapped,
// or as one of their own.
func TestApply(t *testing.T) {
	l := &log{t: t}
	l.change(raftpb.ConfChangeAddNode, 1, 0, false)
	l.change(raftpb.ConfChangeAddNode, 2, 7, false)
	l.change(raftpb.ConfChangeAddLearnerNode, 3, 8, false)
	l.want("1  [http://h1:2380] []; 2  [http://h2:2380] []; 3  [http://h3:2380] [] learner")
	if v := l.state.Voters(); len(v) != 2 || !l.last.Voters || l.last.Forced {
		t.Errorf("voters %v, change %+v", v, l.last)
	}

	l.apply(raftpb.EntryNormal, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1}, ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{
		Member_ID: 1, MemberAttributes: &membershippb.Attributes{Name: "m1", ClientUrls: []string{"http://c1"}}}})
	v2 := func(id uint64, name string) []byte {
		var b []byte
		for i, text := range []string{"PUT", fmt.Sprintf("/0/members/%x/attributes", id), fmt.Sprintf(`{"name":%q,"clientURLs":["http://c"]}`, name)} {
			b = protowire.AppendString(protowire.AppendTag(b, protowire.Number(i+2), protowire.BytesType), text)
		}
		// etcd always writes the numbers as well.
		return protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), 0)
	}
	l.raw(raftpb.EntryNormal, v2(2, "m2"))
	l.raw(raftpb.EntryNormal, protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), v2(3, "m3")))
	l.want("1 m1 [http://h1:2380] [http://c1]; 2 m2 [http://h2:2380] [http://c]; 3 m3 [http://h3:2380] [http://c] learner")

	l.change(raftpb.ConfChangeAddNode, 3, 9, true) // a promotion
	if len(l.state.Voters()) != 3 || l.state.Find(3).Name != "m3" {
		t.Errorf("after a promotion: %+v", l.state)
	}
	before := l.state.Clone()
	l.change(raftpb.ConfChangeRemoveNode, 2, 10, false)
	if l.last.Forced || l.state.Find(2) != nil || l.state.Left(2).Name != "m2" {
		t.Errorf("after a removal: %+v", l.state)
	}
	l.change(raftpb.ConfChangeAddNode, 2, 11, false) // refused: an ID never comes back
	l.change(raftpb.ConfChangeRemoveNode, 99, 12, false)
	if len(l.state.Members) != 2 || len(before.Members) != 3 || before.Find(2) == nil {
		t.Errorf("what members refuse: %+v; what was cloned: %+v", l.state, before)
	}
	l.change(raftpb.ConfChangeRemoveNode, 3, 0, false)
	if !l.last.Forced || len(l.state.Voters()) != 1 {
		t.Errorf("a removal that nobody asked for: %+v", l.last)
	}
}

// Most entries are not about members, not even all of the v2 API.
func TestOtherEntries(t *testing.T) {
	v2 := func(path string) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "PUT")
		b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), path)
		b = protowire.AppendString(protowire.AppendTag(b, 4, protowire.BytesType), `{"name":"m31"}`)
		return protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), 0)
	}
	put, err := proto.Marshal(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1}, Put: &pb.PutRequest{Key: []byte("k")}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		data []byte
		want bool
	}{
		"attributes": {v2("/0/members/1f/attributes"), true}, "a key of the v2 API": {v2("/1/members/1f/attributes"), false}, "the version": {v2("/0/version"), false},
		"the member's other attributes": {v2("/0/members/1f/raftAttributes"), false},
		"no ID":                         {v2("/0/members/x/attributes"), false}, "put": {put, false}, "nothing": {nil, false}, "not known": {[]byte{0xff}, false},
	} {
		state := Membership{Members: []snapshot.Member{{ID: 0x1f}}}
		_, err := state.Apply(raftlog.Entry{Index: 1, Data: c.data})
		require.NoError(t, err)
		if got := state.Members[0].Name == "m31"; got != c.want {
			t.Errorf("%s: %+v", name, state)
		}
	}
}
