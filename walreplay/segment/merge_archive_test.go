package segment_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

var timeline = repository.TimelineID{ClusterID: 7, N: 1}

// archive is a repository with a log, and what was written into it.
type archive struct {
	t     *testing.T
	sink  *watched
	repo  *repository.Repository
	codec codec.Options

	entries    []raftlog.Entry // what must be readable, in order, holes included
	marks      []raftlog.Mark
	sum        raftlog.Sum
	chainStart bool // the next segment begins a chain
	m          *segment.Merger
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	s := &watched{Sink: sinktest.NewMemory()}
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	return &archive{t: t, sink: s, repo: r, chainStart: true}
}

// write stores entries as one segment of level 0 that goes on where the last
// one ended, and marks the last one.
func (a *archive) write(entries ...raftlog.Entry) segment.Header {
	a.t.Helper()
	last := entries[len(entries)-1]
	mark := raftlog.Mark{Index: last.Index, Term: last.Term, Time: time.Now().UTC(), Member: 1, Revision: int64(last.Index)}
	b := segment.Batch{Entries: entries, Marks: []raftlog.Mark{mark}}
	before := a.sum
	if a.chainStart {
		before = raftlog.Sum{}
	}
	h, object, err := segment.Encode(a.t.Context(), timeline, before, a.chainStart, b, segment.Meta{Revision: int64(last.Index), Member: 1, Cut: time.Now()}, segment.Options{Codec: a.codec, Tool: "test"})
	require.NoError(a.t, err)
	require.NoError(a.t, segment.Put(a.t.Context(), a.repo, h, object))
	a.sum, a.chainStart = h.After, false
	a.entries = append(a.entries, entries...)
	a.marks = append(a.marks, mark)
	return h
}

// entriesOf makes n entries of size bytes from index first on.
func entriesOf(first uint64, n, size int) []raftlog.Entry {
	var all []raftlog.Entry
	for i := range uint64(n) {
		all = append(all, raftlog.Entry{Index: first + i, Term: 2, Data: slices.Repeat([]byte{byte(first + i)}, size)})
	}
	return all
}

// run writes n segments of ten small entries each, every apart.
func (a *archive) run(first uint64, n int, every time.Duration) (next uint64) {
	for range n {
		a.write(entriesOf(first, 10, 100)...)
		first += 10
		time.Sleep(every)
	}
	return first
}

func (a *archive) merger() *segment.Merger {
	return segment.NewMerger(segment.MergeConfig{Repo: a.repo, Timeline: timeline, Codec: a.codec, Tool: "test", Target: 64 << 10})
}

func (a *archive) merge(m *segment.Merger) segment.MergeReport {
	a.t.Helper()
	r, err := m.Merge(a.t.Context())
	require.NoError(a.t, err)
	return r
}

// level lists the names at one level.
func (a *archive) level(n int) []string {
	a.t.Helper()
	var names []string
	prefix := fmt.Sprintf("%s/l%d/", timeline, n)
	for obj, err := range a.sink.List(a.t.Context(), prefix, "") {
		require.NoError(a.t, err)
		names = append(names, obj.Name[len(prefix):])
	}
	return names
}

// check reads the whole log and wants every entry and every mark that was
// written, once, and nothing else.
func (a *archive) check(identities ...age.Identity) {
	a.t.Helper()
	l, err := segment.OpenLog(a.t.Context(), a.repo, timeline, nil, identities...)
	require.NoError(a.t, err)
	var got []raftlog.Entry
	for _, span := range l.Coverage() {
		for e, err := range l.Entries(a.t.Context(), span.FirstIndex, span.LastIndex) {
			require.NoError(a.t, err)
			got = append(got, e)
		}
	}
	if !slices.EqualFunc(got, a.entries, raftlog.Entry.Equal) {
		a.t.Fatalf("%d entries can be read, %d were written", len(got), len(a.entries))
	}
	var marks []raftlog.Mark
	all, err := segment.Headers(a.t.Context(), a.repo, timeline, 0, math.MaxUint64)
	require.NoError(a.t, err)
	for _, h := range all {
		if _, b, err := segment.Read(a.t.Context(), a.repo, h.Name(), identities...); err == nil { // or another one holds them
			marks = append(marks, b.Marks...)
		}
	}
	for _, n := range l.Heartbeat() {
		m, err := segment.ReadMark(a.t.Context(), a.repo, n)
		require.NoError(a.t, err)
		marks = append(marks, m.Mark)
	}
	for _, want := range a.marks {
		if !slices.ContainsFunc(marks, func(m raftlog.Mark) bool { return m.Index == want.Index && m.Time.Equal(want.Time) }) {
			a.t.Fatalf("the mark of index %d at %s is gone", want.Index, want.Time)
		}
	}
}

// watched is a sink that can fail at any one call, and that remembers how the
// deletions looked.
type watched struct {
	sinks.Sink
	mu      sync.Mutex
	failAt  int // the call that fails, counted down; 0: none
	fired   bool
	deleted []string
	locked  func(name string) bool
	denied  bool
	rival   func(name string) // called before an object is created
}

func (w *watched) call() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failAt > 0 {
		if w.failAt--; w.failAt == 0 {
			w.failAt, w.fired = 1, true // and so does every later one: the process is dead
			return errKilled
		}
	}
	return nil
}

var errKilled = fmt.Errorf("killed")

func (w *watched) Create(ctx context.Context, name string, o sinks.CreateOptions) (sinks.Writer, error) {
	if err := w.call(); err != nil {
		return nil, err
	}
	if w.rival != nil {
		w.rival(name)
	}
	return w.Sink.Create(ctx, name, o)
}

func (w *watched) Delete(ctx context.Context, name string) error {
	if err := w.call(); err != nil {
		return err
	}
	switch {
	case w.denied:
		return sinks.ErrDenied
	case w.locked != nil && w.locked(name):
		return sinks.ErrLocked
	}
	w.mu.Lock()
	w.deleted = append(w.deleted, name)
	w.mu.Unlock()
	return w.Sink.Delete(ctx, name)
}
