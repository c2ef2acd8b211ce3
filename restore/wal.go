package restore

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

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
