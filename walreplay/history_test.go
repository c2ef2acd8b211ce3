package walreplay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// clockStart is when entry 0 would have been written; each takes a second.
var clockStart = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

func timeOf(index uint64) time.Time { return clockStart.Add(time.Duration(index) * time.Second) }

// world is a log that was made by hand, and a repository that holds parts of it.
type world struct {
	t       *testing.T
	entries []raftlog.Entry // entry i has index i+1
	rev     []int64         // the revision after the entry of that index
	repo    *repository.Repository
	id      repository.TimelineID
	sums    map[uint64]raftlog.Sum // the archive's chain, where segments end
	bases   []*Base
}

func newWorld(t *testing.T) *world {
	t.Helper()
	sink, err := disk.New(t.TempDir())
	require.NoError(t, err)
	repo, err := repository.Init(t.Context(), sink, clockStart)
	require.NoError(t, err)
	return &world{
		t: t, repo: repo, id: repository.TimelineID{ClusterID: 7, N: 1}, sums: map[uint64]raftlog.Sum{},
		entries: logtest.Begin(t), rev: []int64{1, 1, 1},
	}
}

func (w *world) request(revisions int64, r *etcdserverpb.InternalRaftRequest) uint64 {
	e := logtest.Entry(w.t, uint64(len(w.entries)+1), r)
	w.entries = append(w.entries, e)
	w.rev = append(w.rev, w.rev[len(w.rev)-1]+revisions)
	return e.Index
}

func (w *world) put(key, value string) uint64 {
	return w.request(1, logtest.Put(key, value))
}

func (w *world) delete(key string) uint64 {
	return w.request(1, &etcdserverpb.InternalRaftRequest{DeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(key)}})
}

func (w *world) lease(id int64) uint64 {
	return w.request(0, &etcdserverpb.InternalRaftRequest{LeaseGrant: &etcdserverpb.LeaseGrantRequest{ID: id, TTL: 600}})
}

func (w *world) compact(rev int64) uint64 {
	return w.request(0, &etcdserverpb.InternalRaftRequest{Compaction: &etcdserverpb.CompactionRequest{Revision: rev, Physical: true}})
}

// at is the database after an entry, made in one go from nothing.
func (w *world) at(index uint64) (*snapshot.File, snapshot.Facts) {
	w.t.Helper()
	image, facts := logtest.Database(w.t, w.entries[:index])
	require.Equal(w.t, w.rev[index], facts.Revision, "the made log's revision after entry %d", index)
	return image, facts
}

// backup makes a full snapshot after an entry.
func (w *world) backup(index uint64) *Base {
	image, facts := w.at(index)
	id := fmt.Sprintf("b%d", index)
	b := &Base{Name: "backup " + id, ID: id, Image: image, Facts: facts, Taken: timeOf(index),
		Manifest: &snapshot.Manifest{ID: id, Timeline: w.id, Facts: facts, Started: timeOf(index), Finished: timeOf(index)}}
	w.bases = append(w.bases, b)
	return b
}

// archive stores the entries from first to last in one segment, with a mark for
// each that marked says.
func (w *world) archive(first, last uint64, chainStart bool, marked ...uint64) segment.Header {
	w.t.Helper()
	b := segment.Batch{Entries: w.entries[first-1 : last]}
	for _, i := range marked {
		b.Marks = append(b.Marks, raftlog.Mark{Index: i, Term: 2, Time: timeOf(i), Member: 1, Revision: w.rev[i]})
	}
	before := w.sums[first-1]
	if chainStart {
		before = raftlog.Sum{}
	}
	h, data, err := segment.Encode(w.t.Context(), w.id, before, chainStart, b, segment.Meta{Revision: w.rev[last], Member: 1, Cut: timeOf(last)}, segment.Options{Tool: "test"})
	require.NoError(w.t, err)
	require.NoError(w.t, segment.Put(w.t.Context(), w.repo, h, data))
	w.sums[last] = h.After
	return h
}

func (w *world) history() *History {
	w.t.Helper()
	h, err := NewInventory(w.repo, &snapshot.Catalog{}).History(w.t.Context(), w.id)
	require.NoError(w.t, err)
	h.bases = w.bases
	h.log.(*archived).bases = w.bases
	return h
}

func (w *world) options() Options { return Options{ScratchDir: w.t.TempDir(), Engine: BothEngines} }

// rebuild resolves and rebuilds, and compares with the state made in one go.
func (w *world) rebuild(h *History, target Target) (*Point, *Rebuilt) {
	w.t.Helper()
	o := w.options()
	p, err := h.Resolve(w.t.Context(), target, "", o)
	require.NoError(w.t, err, target)
	r, err := h.Rebuild(w.t.Context(), p, o)
	require.NoError(w.t, err, target)
	w.t.Cleanup(func() { r.Close() })
	facts, _ := r.Facts(w.t.Context())
	image, want := w.at(facts.RaftIndex)
	if fmt.Sprint(facts) != fmt.Sprint(want) {
		w.t.Errorf("%s: facts %+v, want %+v", target, facts, want)
	}
	if r.Recipe != nil {
		hash, err := image.HashKV(w.t.Context(), 0)
		if err != nil || hash != r.Recipe.HashKV {
			w.t.Errorf("%s: HashKV %+v, want %+v (%v)", target, r.Recipe.HashKV, hash, err)
		}
	}
	return p, r
}

// What the bulk engine is not for is replayed by etcd's applier, and the result says so; the log
// is read from its beginning again.
func TestBulkLeavesToEtcd(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.put(fmt.Sprint("key", i%3), fmt.Sprint(i))
	}
	w.backup(5)
	w.archive(1, 22, true)
	h := w.history()
	for version, notes := range map[string]int{"3.8.0": 1, "3.7.0": 0} {
		for _, applier := range []ReplayEngine{BulkEngine, BothEngines} {
			o := Options{ScratchDir: t.TempDir(), Engine: applier, SourceSettings: engine.SourceSettings{SourceVersion: version}}
			p, err := h.Resolve(t.Context(), Target{Kind: Latest}, "", o)
			require.NoError(t, err)
			r, err := h.Rebuild(t.Context(), p, o)
			require.NoError(t, err)
			if facts, _ := r.Facts(t.Context()); facts.RaftIndex != 22 || len(r.Notes) != notes || notes > 0 && !strings.Contains(r.Notes[0], "etcd's applier") {
				t.Errorf("%s, %s: index %d, notes %q", version, applier, facts.RaftIndex, r.Notes)
			}
			require.NoError(t, r.Close())
		}
	}
}
