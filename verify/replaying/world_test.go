package replaying

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// world is a log that was made by hand, and a repository with parts of it.
type world struct {
	*rig
	entries []raftlog.Entry // entry i has index i+1
}

func newWorld(t *testing.T) *world {
	t.Helper()
	id := repository.TimelineID{ClusterID: 7, N: 1}
	w := &world{rig: openRig(t, filepath.Join(t.TempDir(), "repo"), id)}
	require.NoError(t, w.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: id, Created: time.Now(), Reason: "test"}))
	w.entries = logtest.Begin(t)
	return w
}

// request appends an entry; the result is its index.
func (w *world) request(r *etcdserverpb.InternalRaftRequest) uint64 {
	w.t.Helper()
	e := logtest.Entry(w.t, uint64(len(w.entries)+1), r)
	w.entries = append(w.entries, e)
	return e.Index
}

func (w *world) put(key, value string) uint64 { return w.request(logtest.Put(key, value)) }

func (w *world) lease(id, ttl int64) uint64 {
	return w.request(&etcdserverpb.InternalRaftRequest{LeaseGrant: &etcdserverpb.LeaseGrantRequest{ID: id, TTL: ttl}})
}

func (w *world) compact(revision int64) uint64 {
	return w.request(&etcdserverpb.InternalRaftRequest{Compaction: &etcdserverpb.CompactionRequest{Revision: revision, Physical: true}})
}

// database is the one after the entry at index, made in one go from nothing.
func (w *world) database(index uint64) (*snapshot.File, snapshot.Facts) {
	w.t.Helper()
	return logtest.Database(w.t, w.entries[:index])
}

// backup stores the state after the entry at index; its ID says which.
func (w *world) backup(index uint64, recipients ...age.Recipient) string {
	w.t.Helper()
	image, _ := w.database(index)
	return w.backupOf(image.Name(), recipients...)
}

func (w *world) backupOf(path string, recipients ...age.Recipient) string {
	w.t.Helper()
	image, err := snapshot.OpenFile(path)
	require.NoError(w.t, err)
	facts, err := image.Facts(w.t.Context())
	require.NoError(w.t, err)
	at := time.Date(2026, 1, 2, 15, 0, int(facts.RaftIndex), 0, time.UTC)
	id := fmt.Sprintf("%s-%06x", at.Format("20060102T150405Z"), facts.RaftIndex)
	w.store(snapshot.Manifest{ID: id, Tool: "test", Started: at, Finished: at, Facts: facts, Source: snapshot.Source{MemberID: 1, Version: "3.6.11"}}, path, recipients...)
	return id
}
