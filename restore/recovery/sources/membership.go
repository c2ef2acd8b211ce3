// Membership follows who the members of a cluster are along its raft log:
// from what a database says, through the membership changes after it.

package sources

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Membership is the members at an index of the log. Its JSON form is stable.
type Membership struct {
	// Index is that of the last entry which changed it, or of the database that
	// it was read from.
	Index uint64 `json:"index"`
	// Members are voters and learners, by ID.
	Members []snapshot.Member `json:"members"`
	// Removed are those that left while the log was followed, by ID. A database
	// names no others.
	Removed []snapshot.Member `json:"removed,omitempty"`
}

// membershipOf is what a database says of the members.
func membershipOf(f snapshot.Facts) Membership {
	s := Membership{Index: f.RaftIndex, Members: slices.Clone(f.Members)}
	s.sort()
	return s
}

// Known reports whether any member is.
func (s Membership) Known() bool { return len(s.Members) > 0 }

// Clone shares nothing that Apply changes.
func (s Membership) Clone() Membership {
	s.Members, s.Removed = slices.Clone(s.Members), slices.Clone(s.Removed)
	return s
}

// Find is the member with an ID, nil where there is none.
func (s Membership) Find(id snapshot.ID) *snapshot.Member {
	for i := range s.Members {
		if s.Members[i].ID == id {
			return &s.Members[i]
		}
	}
	return nil
}

// Left is a member that was removed while the log was followed.
func (s Membership) Left(id snapshot.ID) *snapshot.Member {
	for i := range s.Removed {
		if s.Removed[i].ID == id {
			return &s.Removed[i]
		}
	}
	return nil
}

// Voters are those who vote, by ID.
func (s Membership) Voters() []snapshot.ID {
	var ids []snapshot.ID
	for _, m := range s.Members {
		if !m.IsLearner {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Majority is how many of so many voters have to agree.
func Majority(voters int) int { return voters/2 + 1 }

// MemberName calls a member by its name, or by its ID where it never reported its name.
func MemberName(m snapshot.Member) string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID.String()
}

func (s *Membership) sort() {
	byID := func(a, b snapshot.Member) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(s.Members, byID)
	slices.SortFunc(s.Removed, byID)
}

// MembershipChange is what an entry did to the membership.
type MembershipChange struct {
	// Voters says that it may have changed who votes.
	Voters bool
	// Forced says that no cluster agreed on it: a member that is started with
	// --force-new-cluster removes all others in its own log, with changes that no
	// request asked for. From there on it is another history.
	Forced bool
}

// The kinds of entries, as package engine names them, that give a member's name
// and client URLs: since etcd 3.6, and before.
const (
	kindAttributes   = "cluster-member-attr-set"
	kindV2Attributes = "v2-put"
)

// Apply takes over what an entry does to the membership, as a member does when
// the entry is committed. What members refuse (one that is there already, one
// that is gone) changes nothing. All other entries are passed over.
func (s *Membership) Apply(e raftlog.Entry) (MembershipChange, error) {
	switch e.Type {
	case raftpb.EntryConfChange:
		var c raftpb.ConfChange
		if err := proto.Unmarshal(e.Data, &c); err != nil {
			return MembershipChange{}, fmt.Errorf("%s is no membership change: %w", e, err)
		}
		forced := c.GetId() == 0 && c.GetType() == raftpb.ConfChangeRemoveNode
		return MembershipChange{Voters: true, Forced: forced}, s.change(e, c.GetType(), snapshot.ID(c.GetNodeId()), c.Context)
	case raftpb.EntryNormal:
	default: // it may change the membership in a way that is not known
		_, err := engine.Kind(e)
		return MembershipChange{}, err
	}
	kind, err := engine.Kind(e)
	if err != nil {
		return MembershipChange{}, nil //nolint:nilerr // the replay reports it
	}
	switch kind {
	case kindAttributes:
		var r pb.InternalRaftRequest
		if err := proto.Unmarshal(e.Data, &r); err != nil {
			return MembershipChange{}, fmt.Errorf("%s: %w", e, err)
		}
		set := r.GetClusterMemberAttrSet()
		s.describe(snapshot.ID(set.GetMember_ID()), set.GetMemberAttributes().GetName(), set.GetMemberAttributes().GetClientUrls())
	case kindV2Attributes:
		s.describeV2(e.Data)
	}
	return MembershipChange{}, nil
}

func (s *Membership) change(e raftlog.Entry, kind raftpb.ConfChangeType, id snapshot.ID, about []byte) error {
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

func (s *Membership) describe(id snapshot.ID, name string, clientURLs []string) {
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

// describeV2 takes what etcd 3.5 writes: a PUT of the v2 API to
// /0/members/<ID>/attributes. What cannot be read, or is about something else, says nothing.
func (s *Membership) describeV2(data []byte) {
	f := bytesFields(data)
	if len(f[v2Path]) == 0 {
		f = bytesFields(f[v2Wrapped])
	}
	where := string(f[v2Path])
	var id snapshot.ID
	var a etcd.Attributes
	if strings.HasPrefix(where, "/0/members/") && path.Base(where) == "attributes" &&
		id.UnmarshalText([]byte(path.Base(path.Dir(where)))) == nil && json.Unmarshal(f[v2Value], &a) == nil {
		s.describe(id, a.Name, a.ClientURLs)
	}
}

// bytesFields are the fields of a message that hold bytes; none where it cannot
// be taken apart.
func bytesFields(b []byte) map[protowire.Number][]byte {
	all := map[protowire.Number][]byte{}
	for len(b) > 0 {
		f, n := boltfile.ConsumeField(b)
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
