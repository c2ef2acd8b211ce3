package membership

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/wire"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Change is what an entry did to the membership.
type Change struct {
	// Voters tells that it may have changed who votes.
	Voters bool
	// Forced tells that no cluster agreed on it: a member that is started with
	// --force-new-cluster removes all others in its own log, with changes that no
	// request asked for. From there on it is another history.
	Forced bool
}

// The kinds of entries, as package engine names them, that tell a member's name
// and client URLs: since etcd 3.6, and before.
const (
	kindAttributes   = "cluster-member-attr-set"
	kindV2Attributes = "v2-put"
)

// Concerns tells whether Apply may do anything with an entry.
func Concerns(e raftlog.Entry) bool {
	if e.Type != raftpb.EntryNormal {
		return true
	}
	kind, err := engine.Kind(e)
	if err != nil {
		return false // as Apply does
	}
	if kind == kindV2Attributes {
		_, _, ok := v2Attributes(e.Data)
		return ok
	}
	return kind == kindAttributes
}

// Apply takes over what an entry does to the membership, as a member does when
// the entry is committed. What members refuse (one that is there already, one
// that is gone) changes nothing. All other entries are passed over.
func (s *State) Apply(e raftlog.Entry) (Change, error) {
	switch e.Type {
	case raftpb.EntryConfChange:
		var c raftpb.ConfChange
		if err := proto.Unmarshal(e.Data, &c); err != nil {
			return Change{}, fmt.Errorf("%s is no membership change: %w", e, err)
		}
		forced := c.GetId() == 0 && c.GetType() == raftpb.ConfChangeRemoveNode
		return Change{Voters: true, Forced: forced}, s.change(e, c.GetType(), snapshot.ID(c.GetNodeId()), c.Context)
	case raftpb.EntryConfChangeV2:
		var c raftpb.ConfChangeV2
		if err := proto.Unmarshal(e.Data, &c); err != nil {
			return Change{}, fmt.Errorf("%s is no membership change: %w", e, err)
		}
		return Change{Voters: true}, s.changeV2(e, &c)
	default:
	}
	kind, err := engine.Kind(e)
	if err != nil {
		return Change{}, nil //nolint:nilerr // who replays it says so
	}
	switch kind {
	case kindAttributes:
		var r pb.InternalRaftRequest
		if err := proto.Unmarshal(e.Data, &r); err != nil {
			return Change{}, fmt.Errorf("%s: %w", e, err)
		}
		set := r.GetClusterMemberAttrSet()
		s.describe(snapshot.ID(set.GetMember_ID()), set.GetMemberAttributes().GetName(), set.GetMemberAttributes().GetClientUrls())
	case kindV2Attributes:
		s.describeV2(e.Data)
	}
	return Change{}, nil
}

// changeV2 makes all changes of one entry; more than one of them at once, or if
// asked for, by way of a joint membership that an empty change leaves.
func (s *State) changeV2(e raftlog.Entry, c *raftpb.ConfChangeV2) error {
	if c.LeaveJoint() {
		s.Outgoing, s.Index = nil, e.Index
		return nil
	}
	if _, joint := c.EnterJoint(); joint {
		s.Outgoing = s.Voters()
	}
	for _, one := range c.Changes {
		if err := s.change(e, one.GetType(), snapshot.ID(one.GetNodeId()), c.Context); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) change(e raftlog.Entry, kind raftpb.ConfChangeType, id snapshot.ID, about []byte) error {
	var described etcd.ConfigChangeContext
	if len(about) > 0 {
		if err := json.Unmarshal(about, &described); err != nil {
			return fmt.Errorf("the member in %s: %w", e, err)
		}
	}
	if s.Left(id) != nil {
		return nil // an ID never comes back
	}
	m := s.Find(id)
	switch kind {
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		learner := kind == raftpb.ConfChangeAddLearnerNode
		if m != nil {
			m.IsLearner = m.IsLearner && learner
			break
		}
		s.Members = append(s.Members, snapshot.Member{ID: id, Name: described.Name, PeerURLs: described.PeerURLs, ClientURLs: described.ClientURLs, IsLearner: learner})
	case raftpb.ConfChangeRemoveNode:
		if m == nil {
			return nil
		}
		s.Removed = append(s.Removed, *m)
		*m = s.Members[len(s.Members)-1]
		s.Members = s.Members[:len(s.Members)-1]
	case raftpb.ConfChangeUpdateNode:
		if m == nil {
			return nil
		}
		m.PeerURLs = described.PeerURLs
	}
	s.Index = e.Index
	s.sort()
	return nil
}

func (s *State) describe(id snapshot.ID, name string, clientURLs []string) {
	if m := s.Find(id); m != nil {
		m.Name, m.ClientURLs = name, clientURLs
	}
}

// The fields of the v2 API's request, which stands alone or in field 2 of a
// request.
const (
	v2Wrapped protowire.Number = 2
	v2Path    protowire.Number = 3
	v2Value   protowire.Number = 4
)

// describeV2 takes what etcd 3.4 and 3.5 write: a PUT of the v2 API to
// /0/members/<ID>/attributes. What cannot be read tells nothing.
func (s *State) describeV2(data []byte) {
	id, value, ok := v2Attributes(data)
	var a etcd.Attributes
	if !ok || json.Unmarshal(value, &a) != nil {
		return
	}
	s.describe(id, a.Name, a.ClientURLs)
}

// v2Attributes takes such a request apart; it is not ok where it is about
// something else.
func v2Attributes(data []byte) (id snapshot.ID, value []byte, ok bool) {
	f := bytesFields(data)
	if len(f[v2Path]) == 0 {
		f = bytesFields(f[v2Wrapped])
	}
	where := string(f[v2Path])
	ok = strings.HasPrefix(where, "/0/members/") && path.Base(where) == "attributes" &&
		id.UnmarshalText([]byte(path.Base(path.Dir(where)))) == nil
	return id, f[v2Value], ok
}

// bytesFields are the fields of a message that hold bytes; none where it cannot
// be taken apart.
func bytesFields(b []byte) map[protowire.Number][]byte {
	all := map[protowire.Number][]byte{}
	for len(b) > 0 {
		f, n := wire.Consume(b)
		if n < 0 {
			return nil
		}
		if f.Kind == protowire.BytesType {
			all[f.Number] = f.Bytes
		}
		b = b[n:]
	}
	return all
}
