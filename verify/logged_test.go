package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// logged is a repository of a log that was made by hand, and of backups that are
// what etcd makes of it.
type logged struct {
	*testing.T
	sink    *counting
	repo    *repository.Repository
	id      repository.TimelineID
	entries []raftlog.Entry // entry i has index i+1
}

// counting counts how often each object was opened.
type counting struct {
	sinks.Sink
	mu    sync.Mutex
	opens map[string]int
}

func (c *counting) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	c.mu.Lock()
	c.opens[name]++
	c.mu.Unlock()
	return c.Sink.Open(ctx, name, offset, length)
}

func newLogged(t *testing.T) *logged {
	t.Helper()
	return newLoggedOn(t, sinktest.NewMemory())
}

func newLoggedOn(t *testing.T, s sinks.Sink) *logged {
	t.Helper()
	l := &logged{T: t, sink: &counting{Sink: s, opens: map[string]int{}}, id: repository.TimelineID{ClusterID: 7, N: 1}}
	var err error
	l.repo, err = repository.Init(t.Context(), l.sink, time.Now())
	l.must(err)
	l.must(l.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: l.id, Created: time.Now(), Reason: "test"}))
	who, err := json.Marshal(map[string]any{"id": 1, "peerURLs": []string{"http://127.0.0.1:1"}})
	l.must(err)
	member := uint64(1)
	l.entry(raftpb.EntryConfChange, &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &member, Context: who})
	l.request(&etcdserverpb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}})
	return l
}

func (l *logged) must(err error) {
	l.Helper()
	require.NoError(l, err)
}

func (l *logged) entry(kind raftpb.EntryType, m proto.Message) {
	l.Helper()
	data, err := proto.Marshal(m)
	l.must(err)
	l.entries = append(l.entries, raftlog.Entry{Index: uint64(len(l.entries) + 1), Term: 2, Type: kind, Data: data})
}

func (l *logged) request(r *etcdserverpb.InternalRaftRequest) {
	r.Header = &etcdserverpb.RequestHeader{ID: uint64(len(l.entries) + 1)}
	l.entry(raftpb.EntryNormal, r)
}

// puts appends writes of n keys.
func (l *logged) puts(n int) {
	for i := range n {
		key := fmt.Sprintf("/key/%d", i)
		l.request(&etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: fmt.Appendf(nil, "%d", len(l.entries))}})
	}
}

// backup stores the state after the last entry so far; its ID is given back.
func (l *logged) backup() string {
	l.Helper()
	path := filepath.Join(l.TempDir(), "db")
	l.must(os.WriteFile(path, nil, 0o600))
	eng, err := engine.Open(l.Context(), path, engine.Options{})
	l.must(err)
	for _, e := range l.entries {
		l.must(eng.Apply(e))
	}
	l.must(eng.Close())
	image, err := snapshot.OpenFile(path)
	l.must(err)
	facts, err := image.Facts(l.Context())
	l.must(err)
	raw, err := os.ReadFile(path)
	l.must(err)
	sum := sha256.Sum256(raw)
	var stored bytes.Buffer
	w, err := codec.NewWriter(l.Context(), &stored, codec.Options{})
	l.must(err)
	_, err = w.Write(append(raw, sum[:]...))
	l.must(err)
	l.must(w.Close())
	at := time.Date(2026, 1, 2, 3, 0, len(l.entries), 0, time.UTC)
	id := fmt.Sprintf("%s-%06x", at.Format("20060102T150405Z"), len(l.entries))
	m := snapshot.Manifest{
		Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: l.id, Tool: "test", Started: at, Finished: at,
		Object:         snapshot.StoredObject{Name: repository.SnapshotName(l.id, id, 1, false), Encoding: w.Description()},
		DatabaseSHA256: hex.EncodeToString(sum[:]), Facts: facts, Source: snapshot.Source{MemberID: 1, Version: "3.6.11"},
	}
	_, err = sinks.Put(l.Context(), l.sink, m.Object.Name, stored.Bytes(), sinks.CreateOptions{})
	l.must(err)
	l.must(l.repo.WriteDocument(l.Context(), repository.ManifestName(l.id, id), m))
	return id
}

// archive stores all entries, in segments of ten.
func (l *logged) archive() {
	l.Helper()
	var sum raftlog.Sum
	for from := 0; from < len(l.entries); from += 10 {
		part := l.entries[from:min(from+10, len(l.entries))]
		h, data, err := segment.Encode(l.Context(), l.id, sum, from == 0, segment.Batch{Entries: part}, segment.Meta{Member: 1, Cut: time.Now()}, segment.Options{Tool: "test"})
		l.must(err)
		l.must(segment.Put(l.Context(), l.repo, h, data))
		sum = h.After
	}
}

// last is the name of the log's newest segment.
func (l *logged) last() string {
	return repository.SegmentName{Timeline: l.id, First: uint64(len(l.entries)-1)/10*10 + 1}.String()
}

// flip alters the last byte of an object.
func (l *logged) flip(name string) {
	l.Helper()
	data, err := sinks.Get(l.Context(), l.sink, name, 1<<30)
	l.must(err)
	data = bytes.Clone(data)
	data[len(data)-1] ^= 1
	l.must(l.sink.Delete(l.Context(), name))
	_, err = sinks.Put(l.Context(), l.sink, name, data, sinks.CreateOptions{})
	l.must(err)
}

// drills verifies up to a drill; the scratch folder is to be empty afterwards.
// The drills are by the backup's ID.
func (l *logged) drills(backup string) (*report.Report, map[string]report.Check) {
	l.Helper()
	scratch := l.TempDir()
	clear(l.sink.opens)
	r, err := verify.Repository(l.Context(), l.repo, verify.Request{Backup: backup, Level: report.Drill, ScratchDir: scratch})
	l.must(err)
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		l.Errorf("the scratch folder has %v (%v)", left, err)
	}
	all := map[string]report.Check{}
	for _, c := range r.Checks {
		if c.Level == report.Drill {
			all[c.Object[strings.LastIndex(c.Object, "/")+1:]] = c
		}
	}
	return r, all
}
