package schedule

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

func TestMain(m *testing.M) { os.Exit(storetest.M{M: m}.Run()) }

// verifier is the configuration of an agent that talks to no cluster.
const verifier = `
name: v1
repository: {url: "file:///nowhere"}
jobs: {full: {run: off}, divergence: {run: off}}
resources: {job-memory: 1GiB}
listen: {address: "127.0.0.1:0"}
`

// beside is the configuration of an agent beside a member.
const beside = `
name: m1
etcd: {endpoints: ["http://127.0.0.1:1"]}
member: {data-dir: /nowhere}
repository: {url: "file:///nowhere"}
archive: {spool-dir: /nowhere/spool}
resources: {job-memory: 1GiB}
listen: {address: "127.0.0.1:0"}
`

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "agent.yaml")
	must(t, err)
	return cfg
}

func must(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

// termOn is a term on a sink of the test's; nothing of it runs.
func termOn(t testing.TB, text string, sink sinks.Sink) *session {
	t.Helper()
	cfg := parse(t, text)
	a := &Agent{Options: Options{Tool: "test", Logger: slog.New(slog.DiscardHandler), Program: "/nowhere/requorum"}, started: time.Now(), reloads: make(chan *config.Config), trustEvery: time.Minute}
	session := &session{Agent: a, cfg: cfg, sink: sink, documents: rememberDocuments(sink), failures: map[string]error{}, mergers: map[repository.TimelineID]*segment.Merger{}, relist: make(chan struct{}, 1), longest: periods(cfg)}
	var err error
	session.runner, err = session.newRunner()
	must(t, err)
	a.current = session
	return session
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		n += strings.Count(line, part)
	}
	return n
}

var (
	timelineA = repository.TimelineID{ClusterID: 7, N: 1}
	timelineB = repository.TimelineID{ClusterID: 7, N: 2}
)

// shelf is a repository that the test fills.
type shelf struct {
	testing.TB
	sink sinks.Sink
	repo *repository.Repository
	sums map[repository.TimelineID]raftlog.Sum
	ends map[repository.TimelineID]uint64
	n    int
}

func newShelf(t testing.TB, sink sinks.Sink) *shelf {
	t.Helper()
	repo, err := repository.Init(t.Context(), sink, time.Now())
	must(t, err)
	s := &shelf{TB: t, sink: sink, repo: repo, sums: map[repository.TimelineID]raftlog.Sum{}, ends: map[repository.TimelineID]uint64{}}
	s.timeline(timelineA)
	return s
}

func (s *shelf) timeline(id repository.TimelineID) {
	s.Helper()
	must(s, s.repo.OpenTimeline(s.Context(), repository.Timeline{Format: 1, ID: id, Created: time.Now(), Reason: "test"}))
}

// full is a backup, begun at a time, of what the log has reached. Its bytes are no
// database.
func (s *shelf) full(id repository.TimelineID, started time.Time) *snapshot.Manifest {
	s.Helper()
	s.n++
	backup := fmt.Sprintf("%s-%06x", started.UTC().Format("20060102T150405Z"), s.n)
	name := repository.SnapshotName(id, backup, 1, false)
	_, err := sinks.Put(s.Context(), s.sink, name, []byte(backup), sinks.CreateOptions{})
	must(s, err)
	m := snapshot.Manifest{
		Format: 1, Kind: snapshot.KindFull, ID: backup, Timeline: id, Tool: "test", Started: started, Finished: started.Add(time.Second),
		Object: snapshot.StoredObject{Name: name, Encoding: codec.Encoding{StoredSize: int64(len(backup)), StoredSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(backup))), RawSize: 200 << 20}},
		Facts:  snapshot.Facts{RaftIndex: s.ends[id], RaftTerm: 2, Revision: int64(s.ends[id])},
		Source: snapshot.Source{Name: "m2"},
	}
	must(s, s.repo.WriteDocument(s.Context(), repository.ManifestName(id, backup), m))
	read, err := snapshot.ReadManifest(s.Context(), s.repo, id, backup)
	must(s, err)
	return read
}

// log archives n entries behind the end, as one segment with a mark.
func (s *shelf) log(id repository.TimelineID, n int, mark time.Time) {
	s.Helper()
	first := s.ends[id] + 1
	var b segment.Batch
	for i := range uint64(n) {
		b.Entries = append(b.Entries, raftlog.Entry{Index: first + i, Term: 2, Data: []byte("x")})
	}
	last := first + uint64(n) - 1
	b.Marks = []raftlog.Mark{{Index: last, Term: 2, Time: mark, Member: 1, Revision: int64(last)}}
	s.sums[id], s.ends[id] = logtest.Archive(s, s.repo, id, s.sums[id], b, mark, codec.Options{}).After, last
}

// verdict says that a backup reached a level, or was found damaged at it.
func (s *shelf) verdict(m *snapshot.Manifest, reached report.Level, status report.Status, phases ...report.Phase) {
	s.Helper()
	v := verdict.Verdict{Started: time.Now(), Finished: time.Now(), Tool: "test", Level: cmpLevel(reached),
		Timeline: m.Timeline, Backup: m.ID, Manifest: m.Stored.SHA256, Status: status, Reached: reached, Phases: phases}
	if status == report.Damaged {
		v.Findings = []report.Finding{{Kind: report.KindObject, Text: "bits are flipped"}, {Kind: report.KindObject, Text: "more of them"}}
	}
	must(s, verdict.Write(s.Context(), s.repo, []verdict.Verdict{v}))
}

func cmpLevel(r report.Level) report.Level {
	if r == "" {
		return report.Checksum
	}
	return r
}

func (s *shelf) inventory() *inventory {
	s.Helper()
	one, err := newInventory(s.Context(), rememberDocuments(s.sink))
	must(s, err)
	must(s, one.look(s.Context(), time.Now()))
	return one
}

// noNull fails where a list is null in JSON.
func noNull(t testing.TB, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	if strings.Contains(string(data), "null") {
		t.Errorf("null is no list: %s", data)
	}
}

// memory is a sink that counts.
func memory() *sinktest.Faulty { return sinktest.NewFaulty(sinktest.NewMemory()) }
