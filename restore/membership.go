package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/version"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// newCluster gives the members their IDs, which come from their peer URLs and
// the token alone, and makes some of them learners, which etcd's own function
// cannot.
func newCluster(initialCluster, token string, learners []string) (*membership.RaftCluster, error) {
	urls, err := parseMembers(initialCluster)
	if err != nil {
		return nil, fmt.Errorf("restore: the new cluster's members: %w", err)
	}
	for _, name := range learners {
		if _, ok := urls[name]; !ok {
			return nil, fmt.Errorf("restore: the learner %s is no member of %q", name, initialCluster)
		}
	}
	if len(learners) >= len(urls) {
		return nil, fmt.Errorf("restore: all of %q are learners: a cluster needs a voter", initialCluster)
	}
	seen := map[string]string{}
	for name, us := range urls {
		for _, u := range us.StringSlice() {
			if other, ok := seen[u]; ok && other != name {
				return nil, fmt.Errorf("restore: members %s and %s share the peer URL %s", min(name, other), max(name, other), u)
			}
			seen[u] = name
		}
	}
	plain, err := membership.NewClusterFromURLsMap(zap.NewNop(), token, urls)
	if err != nil {
		return nil, fmt.Errorf("restore: members %q: %w", initialCluster, err)
	}
	members := plain.Members()
	for _, m := range members {
		m.IsLearner = slices.Contains(learners, m.Name)
	}
	return membership.NewClusterFromMembers(zap.NewNop(), plain.ID(), members), nil
}

var hasPort = regexp.MustCompile(`:[0-9]+/?$`)

// parseMembers reads etcd's form, with words of its own for what people mistype.
func parseMembers(initialCluster string) (types.URLsMap, error) {
	for part := range strings.SplitSeq(initialCluster, ",") {
		if part == "" {
			continue
		}
		name, url, ok := strings.Cut(part, "=")
		if !ok || name == "" || url == "" {
			return nil, fmt.Errorf("%q: want name=peer-url, such as m1=http://10.0.0.1:2380", part)
		}
		if !strings.Contains(url, "://") {
			return nil, fmt.Errorf("%q: want a URL with http:// or https://, such as %s=https://%s", part, name, url)
		}
		if scheme, address, _ := strings.Cut(url, "://"); strings.HasPrefix(scheme, "http") && !hasPort.MatchString(address) {
			return nil, fmt.Errorf("%q has no port: write %s:2380", part, strings.TrimRight(part, ":/"))
		}
	}
	urls, err := types.NewURLsMap(initialCluster)
	if err != nil {
		return nil, fmt.Errorf("%w: want name=peer-url,…, such as m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380", err)
	}
	if len(urls) == 0 {
		return nil, errors.New("none: want name=peer-url,…, such as m1=http://10.0.0.1:2380")
	}
	return urls, nil
}

// clusterOf rebuilds the cluster that a plan describes.
func clusterOf(p *Plan) *membership.RaftCluster {
	members := make([]*membership.Member, len(p.Members))
	for i, m := range p.Members {
		members[i] = &membership.Member{
			ID:             types.ID(m.ID),
			RaftAttributes: membership.RaftAttributes{PeerURLs: m.PeerURLs, IsLearner: m.Learner},
			Attributes:     membership.Attributes{Name: m.Name},
		}
	}
	return membership.NewClusterFromMembers(zap.NewNop(), types.ID(p.ClusterID), members)
}

// withVersion lets the cluster know its version, so that it is written into the
// snapshot file: 3.5 reads it there, and refuses a cluster newer than itself.
func withVersion(c *membership.RaftCluster, v *semver.Version) {
	c.SetBackend(fixedMembership{cluster: c, version: v})
	c.UnsafeLoad()
}

// fixedMembership answers a RaftCluster with what it knows itself, and a
// version, which cannot be set otherwise without a server. Nothing else of the
// interface is called.
type fixedMembership struct {
	membership.MembershipBackend
	cluster *membership.RaftCluster
	version *semver.Version
}

// MustCreateBackendBuckets is called by SetBackend.
func (fixedMembership) MustCreateBackendBuckets() {}

// ClusterVersionFromBackend is nil before 3.5.
func (f fixedMembership) ClusterVersionFromBackend() *semver.Version { return f.version }

// DowngradeInfoFromBackend is nil: no downgrade is under way.
func (fixedMembership) DowngradeInfoFromBackend() *version.DowngradeInfo { return nil }

// MustReadMembersFromBackend gives the cluster its own members.
func (f fixedMembership) MustReadMembersFromBackend() (members map[types.ID]*membership.Member, removed map[types.ID]bool) {
	members = map[types.ID]*membership.Member{}
	for _, m := range f.cluster.Members() {
		members[m.ID] = m
	}
	return members, map[types.ID]bool{}
}

// walBytes is what a member's log takes while it is written: etcd preallocates
// one segment and the next one.
func walBytes() int64 { return 2 * wal.SegmentSizeBytes }

// writeLog writes a member's first WAL segment and its .snap file. The log adds
// the members one by one, as a bootstrap does, and has a snapshot right behind.
// 3.7 takes the members from the database, 3.5 and 3.6 from the .snap file.
func writeLog(walDir, snapDir string, cluster *membership.RaftCluster, m Member) (err error) {
	lg := zap.NewNop()
	start := startOf(cluster)
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{
		NodeID: proto.Uint64(uint64(m.ID)), ClusterID: proto.Uint64(uint64(cluster.ID())),
	})
	if err != nil {
		return err
	}
	entries, err := memberEntries(cluster, start.term)
	if err != nil {
		return err
	}
	w, err := wal.Create(lg, walDir, metadata)
	if err != nil {
		return fmt.Errorf("create the log in %s: %w", walDir, err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	state := &raftpb.HardState{
		Term: proto.Uint64(start.term), Vote: proto.Uint64(start.conf.Voters[0]), Commit: proto.Uint64(start.index),
	}
	if err := w.Save(state, entries); err != nil {
		return fmt.Errorf("write the log in %s: %w", walDir, err)
	}
	if err := snap.New(lg, snapDir).SaveSnap(&raftpb.Snapshot{
		Data: etcdserver.GetMembershipInfoInV2Format(lg, cluster),
		Metadata: &raftpb.SnapshotMetadata{
			Index: proto.Uint64(start.index), Term: proto.Uint64(start.term), ConfState: start.conf,
		},
	}); err != nil {
		return fmt.Errorf("write the raft snapshot in %s: %w", snapDir, err)
	}
	return w.SaveSnapshot(&walpb.Snapshot{
		Index: proto.Uint64(start.index), Term: proto.Uint64(start.term), ConfState: start.conf,
	})
}

func memberEntries(cluster *membership.RaftCluster, term uint64) ([]*raftpb.Entry, error) {
	var out []*raftpb.Entry
	for i, m := range cluster.Members() {
		context, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		kind := raftpb.ConfChangeAddNode
		if m.IsLearner {
			kind = raftpb.ConfChangeAddLearnerNode
		}
		data, err := proto.Marshal(&raftpb.ConfChange{Type: kind.Enum(), NodeId: proto.Uint64(uint64(m.ID)), Context: context})
		if err != nil {
			return nil, err
		}
		out = append(out, &raftpb.Entry{
			Type: raftpb.EntryConfChange.Enum(), Term: proto.Uint64(term), Index: proto.Uint64(uint64(i + 1)), Data: data,
		})
	}
	return out, nil
}
