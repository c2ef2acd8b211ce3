package walreplay

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// fed is the data directory of a member that was behind: its database is of one
// entry, its log goes on to another, and then the leader sent it a snapshot. The
// log has the entries after that, up to the last one.
type fed struct {
	database, log, sent, last uint64
}

func (w *world) memberDir(f fed) string {
	w.t.Helper()
	dir := w.t.TempDir()
	snap := filepath.Join(dir, "member", "snap")
	must := func(err error) {
		w.t.Helper()
		require.NoError(w.t, err)
	}
	must(os.MkdirAll(snap, 0o700))
	meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(1), ClusterID: proto.Uint64(7)})
	must(err)
	log, err := wal.Create(nil, filepath.Join(dir, "member", "wal"), meta)
	must(err)
	log.SetUnsafeNoFsync()
	save := func(first, last uint64) {
		var list []*raftpb.Entry
		for _, e := range w.entries[first-1 : last] {
			list = append(list, e.Raft())
		}
		must(log.Save(&raftpb.HardState{Term: proto.Uint64(2), Vote: proto.Uint64(1), Commit: &last}, list))
	}
	save(1, f.log)
	must(log.SaveSnapshot(&walpb.Snapshot{Index: &f.sent, Term: proto.Uint64(2), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}))
	if f.last > f.sent {
		save(f.sent+1, f.last)
	}
	must(log.Close())
	for name, index := range map[string]uint64{"db": f.database, fmt.Sprintf("%016x.snap.db", f.sent): f.sent} {
		image, _ := w.at(index)
		data, err := os.ReadFile(image.Name())
		must(err)
		must(os.WriteFile(filepath.Join(snap, name), data, 0o600))
	}
	return dir
}

// Promise 2 of the design, for what a leader had sent and the member had not put
// in place when it died: a *.snap.db that is newer than db is state. The log goes
// on from it, or ends with it; what is before it is reached from db, as far as
// the log goes, and what lies between is named.
func TestPromise2LeadersSnapshot(t *testing.T) {
	for _, f := range []fed{{4, 6, 10, 13}, {4, 6, 10, 10}, {4, 12, 10, 13}} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			w := newWorld(t)
			for n := range 14 {
				w.put(fmt.Sprint("k", n%3), fmt.Sprint(n))
			}
			dir := w.memberDir(f)
			before := storetest.Fingerprint(t, dir)
			h, err := OpenDataDir(t.Context(), dir, "")
			require.NoError(t, err)
			defer h.Close()

			p, r := w.rebuild(h, Target{})
			if facts, _ := r.Facts(t.Context()); facts.RaftIndex != f.last {
				t.Errorf("the end is raft index %d, want %d", facts.RaftIndex, f.last)
			}
			if p.Base.Index() != f.sent || !strings.HasSuffix(p.Base.Name, ".snap.db") {
				t.Errorf("begun from %s at %d", p.Base.Name, p.Base.Index())
			}
			for _, index := range []uint64{f.database, f.log, f.sent, f.last} {
				_, r := w.rebuild(h, Target{Kind: AtIndex, Index: index})
				if facts, _ := r.Facts(t.Context()); facts.RaftIndex != index {
					t.Errorf("raft index %d, want %d", facts.RaftIndex, index)
				}
			}
			if f.log+1 < f.sent {
				_, err := h.Resolve(t.Context(), Target{Kind: AtIndex, Index: f.log + 1}, "", w.options())
				var not *NotCoveredError
				if !errors.As(err, &not) || not.Before == nil || not.Before.Index != f.log || not.After == nil || not.After.Index != f.sent || !errors.Is(err, snapshot.ErrNoBackup) {
					t.Errorf("between the log and the leader's snapshot: %v", err)
				}
			}
			if !maps.Equal(before, storetest.Fingerprint(t, dir)) {
				t.Error("the survivor's files were changed")
			}
		})
	}
}
