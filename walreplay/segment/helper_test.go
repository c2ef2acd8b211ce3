package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

var testTimeline = repository.TimelineID{ClusterID: 0xcdf818194e3a8c32, N: 1}

// start is the time of mark 0.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// entriesOf makes the entries of one history, the same for every call: history
// distinguishes one from another.
func entriesOf(history string, first, last uint64) []raftlog.Entry {
	var all []raftlog.Entry
	for i := first; i <= last; i++ {
		e := raftlog.Entry{Index: i, Term: 1 + i/100, Data: fmt.Appendf(nil, "%s entry %d", history, i)}
		switch i % 7 {
		case 3:
			e.Data = nil
		case 5:
			e.Type = raftpb.EntryConfChangeV2
		}
		all = append(all, e)
	}
	return all
}

// sumOf is the chain's value after entry last of a history that was started
// at first.
func sumOf(history string, first, last uint64) raftlog.Sum {
	knownSums.Lock()
	defer knownSums.Unlock()
	origin := fmt.Sprint(history, first)
	all := knownSums.of[origin] // of the entries from first on
	for next := first + uint64(len(all)); next <= last; next++ {
		var sum raftlog.Sum
		if len(all) > 0 {
			sum = all[len(all)-1]
		}
		all = append(all, sum.Next(entriesOf(history, next, next)[0]))
	}
	knownSums.of[origin] = all
	return all[last-first]
}

var knownSums = struct {
	sync.Mutex
	of map[string][]raftlog.Sum
}{of: map[string][]raftlog.Sum{}}

func markOf(index uint64, member uint64, at time.Time) raftlog.Mark {
	return raftlog.Mark{Index: index, Term: 1 + index/100, Time: at, Member: member, Revision: int64(index) - 3}
}

// piece is a segment to be made: entries first to last of a history whose chain
// begins at origin.
type piece struct {
	history     string
	origin      uint64
	first, last uint64
	level       int
	marks       []raftlog.Mark
	previous    uint64 // at level 0: the first index of the one before it
}

func (p piece) encode(t testing.TB, recipients ...age.Recipient) (Header, []byte) {
	t.Helper()
	var before raftlog.Sum
	if p.first > p.origin {
		before = sumOf(p.history, p.origin, p.first-1)
	}
	h, data, err := Encode(t.Context(), testTimeline, before, p.first == p.origin,
		Batch{entriesOf(p.history, p.first, p.last), p.marks},
		Meta{Revision: max(0, int64(p.last)-3), Member: 0xa1, Cut: start, Previous: p.previous},
		Options{Codec: codec.Options{Recipients: recipients}, Tool: "requorum test", Level: p.level})
	require.NoError(t, err)
	return h, data
}

// store stores a piece under its own name.
func (p piece) store(t testing.TB, s sinks.Sink, recipients ...age.Recipient) Header {
	t.Helper()
	h, data := p.encode(t, recipients...)
	require.NoError(t, Put(t.Context(), newRepo(t, s), h, data))
	return h
}

func newRepo(t testing.TB, s sinks.Sink) *repository.Repository {
	t.Helper()
	repo, err := repository.Init(t.Context(), s, start)
	require.NoError(t, err)
	return repo
}

func newDisk(t testing.TB) sinks.Sink {
	t.Helper()
	s, err := disk.New(t.TempDir() + "/repo")
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// stored opens the log of some pieces.
func stored(t testing.TB, s sinks.Sink, pieces ...piece) *Log {
	t.Helper()
	repo := newRepo(t, s)
	for _, p := range pieces {
		p.store(t, s)
	}
	return openLog(t, repo)
}

func openLog(t testing.TB, repo *repository.Repository, identities ...age.Identity) *Log {
	t.Helper()
	l, err := OpenLog(t.Context(), repo, testTimeline, nil, identities...)
	require.NoError(t, err)
	return l
}

// collect reads entries until the first error.
func collect(t testing.TB, l *Log, first, last uint64) ([]raftlog.Entry, error) {
	t.Helper()
	var all []raftlog.Entry
	for e, err := range l.Entries(t.Context(), first, last) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// wantEntries fails the test unless exactly those of a history are read.
func wantEntries(t testing.TB, l *Log, history string, first, last uint64) {
	t.Helper()
	got, err := collect(t, l, first, last)
	require.NoError(t, err, "entries %d to %d", first, last)
	if !slices.EqualFunc(got, entriesOf(history, first, last), raftlog.Entry.Equal) {
		t.Errorf("entries %d to %d: got %d others", first, last, len(got))
	}
}

func wantDamaged(t testing.TB, what string, err error) {
	t.Helper()
	var d *snapshot.DamagedError
	if !errors.As(err, &d) {
		t.Errorf("%s: got %v, want a DamagedError", what, err)
	}
}

// overwrite replaces an object, which no sink offers.
func overwrite(t testing.TB, s sinks.Sink, name string, data []byte) {
	t.Helper()
	require.NoError(t, s.Delete(t.Context(), name))
	_, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{})
	require.NoError(t, err)
}

func newIdentity(t testing.TB) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return i
}

// memory is a sink with one object in it.
func memory(t testing.TB, name string, data []byte) sinks.Sink {
	t.Helper()
	s := sinktest.NewMemory()
	_, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{})
	require.NoError(t, err)
	return s
}

// testOptions are cheap.
var testOptions = codec.Options{FrameSize: 1 << 16, Workers: 1}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sealBytes makes a document of a body as it stands.
func sealBytes(body []byte) []byte {
	return fmt.Appendf(nil, "{\"sha256\": %q,\n\"body\":\n%s\n}\n", sha256Hex(body), body)
}
