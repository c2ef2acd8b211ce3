package walreplay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
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
	w := &world{t: t, repo: repo, id: repository.TimelineID{ClusterID: 7, N: 1}, rev: []int64{1}, sums: map[uint64]raftlog.Sum{}}
	w.join(1)
	w.request(0, &etcdserverpb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}})
	return w
}

func (w *world) add(kind raftpb.EntryType, data []byte, revisions int64) uint64 {
	e := raftlog.Entry{Index: uint64(len(w.entries) + 1), Term: 2, Type: kind, Data: data}
	w.entries = append(w.entries, e)
	w.rev = append(w.rev, w.rev[len(w.rev)-1]+revisions)
	return e.Index
}

func (w *world) join(id uint64) {
	m, err := json.Marshal(map[string]any{"id": id, "peerURLs": []string{"http://127.0.0.1:1"}})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &id, Context: m}
	data, err := proto.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.add(raftpb.EntryConfChange, data, 0)
}

func (w *world) request(revisions int64, r *etcdserverpb.InternalRaftRequest) uint64 {
	r.Header = &etcdserverpb.RequestHeader{ID: uint64(len(w.entries) + 1)}
	data, err := proto.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.add(raftpb.EntryNormal, data, revisions)
}

func (w *world) put(key, value string) uint64 {
	return w.request(1, &etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)}})
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
func (w *world) at(index uint64) (path string, facts snapshot.Facts) {
	w.t.Helper()
	path = filepath.Join(w.t.TempDir(), fmt.Sprintf("db-%d", index))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	eng, err := engine.Open(w.t.Context(), path, engine.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range w.entries[:index] {
		if err := eng.Apply(e); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := eng.Close(); err != nil {
		w.t.Fatal(err)
	}
	f, err := snapshot.OpenFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if facts, err = f.Facts(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if facts.Revision != w.rev[index] {
		w.t.Fatalf("the made log is at revision %d after entry %d, want %d", facts.Revision, index, w.rev[index])
	}
	return path, facts
}

// backup makes a full snapshot after an entry.
func (w *world) backup(index uint64) *Base {
	path, facts := w.at(index)
	image, err := snapshot.OpenFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
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
	if err != nil {
		w.t.Fatal(err)
	}
	if err := segment.Put(w.t.Context(), w.repo, h, data); err != nil {
		w.t.Fatal(err)
	}
	w.sums[last] = h.After
	return h
}

func (w *world) history() *History {
	w.t.Helper()
	h, err := NewArchives(w.repo).History(w.t.Context(), &snapshot.Catalog{}, w.id)
	if err != nil {
		w.t.Fatal(err)
	}
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
	if err != nil {
		w.t.Fatalf("%s: %v", target, err)
	}
	r, err := h.Rebuild(w.t.Context(), p, o)
	if err != nil {
		w.t.Fatalf("%s: %v", target, err)
	}
	w.t.Cleanup(func() { r.Close() })
	facts, _ := r.Facts(w.t.Context())
	path, want := w.at(facts.RaftIndex)
	if fmt.Sprint(facts) != fmt.Sprint(want) {
		w.t.Errorf("%s: facts %+v, want %+v", target, facts, want)
	}
	if r.Recipe != nil {
		f, err := snapshot.OpenFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		hash, err := f.HashKV(w.t.Context(), 0)
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
		for _, engine := range []ReplayEngine{BulkEngine, BothEngines} {
			o := Options{ScratchDir: t.TempDir(), Engine: engine, SourceVersion: version}
			p, err := h.Resolve(t.Context(), Target{Kind: Latest}, "", o)
			require.NoError(t, err)
			r, err := h.Rebuild(t.Context(), p, o)
			require.NoError(t, err)
			if facts, _ := r.Facts(t.Context()); facts.RaftIndex != 22 || len(r.Notes) != notes || notes > 0 && !strings.Contains(r.Notes[0], "etcd's applier") {
				t.Errorf("%s, %s: index %d, notes %q", version, engine, facts.RaftIndex, r.Notes)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
