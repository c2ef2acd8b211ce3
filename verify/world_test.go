package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

var (
	worldTimeline = repository.TimelineID{ClusterID: 0xcdf818194e3a8c32, N: 1}
	worldStart    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	oldBackup     = "20260102T030405Z-000001"
	newBackup     = "20260102T040405Z-000002"
	thirdBackup   = "20260102T050405Z-000003" // made by tests that need one
)

// world is a repository made by hand, with one object of each kind: two backups,
// at raft index 10 and 35, and the log from 1 to 50 in segments of ten, the first
// two of them merged as well.
type world struct {
	*testing.T
	sink sinks.Sink
	repo *repository.Repository
	to   []age.Recipient
	keys []age.Identity
}

// newWorld fills s, encrypted where there is a recipient.
func newWorld(t *testing.T, s sinks.Sink, recipients ...age.Recipient) *world {
	t.Helper()
	repo, err := repository.Init(t.Context(), s, worldStart)
	w := &world{T: t, sink: s, repo: repo, to: recipients}
	w.must(err)
	_, err = repo.EnsureTimeline(t.Context(), repository.Timeline{ID: worldTimeline, Created: worldStart, Reason: "first backup"})
	w.must(err)
	w.backup(oldBackup, 10)
	w.backup(newBackup, 35)
	for first := uint64(1); first <= 41; first += 10 {
		w.segment("a", 1, first, first+9, 0)
	}
	w.segment("a", 1, 1, 20, 1)
	for _, index := range []uint64{35, 50} {
		w.mark(index, termOf(index), time.Duration(index)*time.Minute)
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	require.NoError(w, err)
}

// database are pages that nobody looks into on the checksum level, and their
// SHA-256.
func database(id string) []byte {
	raw := bytes.Repeat([]byte(id+" "), 4096)[:16*4096]
	sum := sha256.Sum256(raw)
	return append(raw, sum[:]...)
}

// backup stores one that ends with an entry.
func (w *world) backup(id string, index uint64) *snapshot.Manifest {
	w.Helper()
	return w.backupOf(id, index, database(id))
}

// backupOf stores given bytes as one: a database and the sum behind it.
func (w *world) backupOf(id string, index uint64, raw []byte) *snapshot.Manifest {
	w.Helper()
	var stored bytes.Buffer
	cw, err := codec.NewWriter(w.Context(), &stored, codec.Options{FrameSize: 4096, Workers: 1, Recipients: w.to})
	w.must(err)
	_, err = cw.Write(raw)
	w.must(err)
	w.must(cw.Close())
	m := &snapshot.Manifest{
		Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: worldTimeline, Tool: "requorum test", Started: worldStart, Finished: worldStart,
		Object:         snapshot.StoredObject{Name: repository.SnapshotName(worldTimeline, id, 1, len(w.to) > 0), Encoding: cw.Description()},
		DatabaseSHA256: sumOf(raw[:len(raw)-sha256.Size]),
		Facts:          snapshot.Facts{RaftIndex: index, RaftTerm: termOf(index), Revision: int64(index), PageSize: 4096},
	}
	w.put(m.Object.Name, stored.Bytes())
	w.remove(repository.ManifestName(worldTimeline, id))
	w.must(w.repo.WriteDocument(w.Context(), repository.ManifestName(worldTimeline, id), m))
	return m
}

// move puts a backup into a timeline of its own, beside the world's.
func (w *world) move(id string) {
	w.Helper()
	other := repository.TimelineID{ClusterID: worldTimeline.ClusterID, N: 2}
	_, err := w.repo.EnsureTimeline(w.Context(), repository.Timeline{ID: other, Created: worldStart, Reason: "restored"})
	w.must(err)
	m, err := snapshot.ReadManifest(w.Context(), w.repo, worldTimeline, id)
	w.must(err)
	data := w.get(m.Object.Name)
	w.remove(m.Object.Name)
	w.remove(manifestObject(id))
	m.Timeline, m.Object.Name = other, repository.SnapshotName(other, id, 1, m.Object.Encrypted())
	w.put(m.Object.Name, data)
	w.must(w.repo.WriteDocument(w.Context(), repository.ManifestName(other, id), m))
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func termOf(index uint64) uint64 { return 1 + index/15 }

// entriesOf are those of one of several histories.
func entriesOf(history string, first, last uint64) []raftlog.Entry {
	var all []raftlog.Entry
	for i := first; i <= last; i++ {
		all = append(all, raftlog.Entry{Index: i, Term: termOf(i), Data: fmt.Appendf(nil, "%s %d", history, i)})
	}
	return all
}

// encode makes a segment of a history whose chain begins at origin.
func (w *world) encode(history string, origin, first, last uint64, level int) (segment.Header, []byte) {
	w.Helper()
	var before raftlog.Sum
	if first > origin {
		for _, e := range entriesOf(history, origin, first-1) {
			before = before.Next(e)
		}
	}
	h, data, err := segment.Encode(w.Context(), worldTimeline, before, first == origin, segment.Batch{Entries: entriesOf(history, first, last)},
		segment.Meta{Member: 0xa1, Cut: worldStart}, segment.Options{Codec: codec.Options{Recipients: w.to}, Tool: "requorum test", Level: level})
	w.must(err)
	return h, data
}

func (w *world) segment(history string, origin, first, last uint64, level int) {
	w.Helper()
	h, data := w.encode(history, origin, first, last, level)
	w.remove(h.Name())
	w.must(segment.Put(w.Context(), w.repo, h, data))
}

func (w *world) mark(index, term uint64, after time.Duration) {
	w.Helper()
	m := raftlog.Mark{Index: index, Term: term, Time: worldStart.Add(after), Member: 0xa1}
	w.must(segment.WriteMark(w.Context(), w.repo, worldTimeline, m))
}

func (w *world) gap(first, last uint64) {
	w.Helper()
	w.must(segment.WriteGap(w.Context(), w.repo, segment.GapRecord{Timeline: worldTimeline, First: first, Last: last, Reason: "purged", Created: worldStart}))
}

// l0 is the name of a segment as an archiver wrote it.
func l0(first uint64) string {
	return repository.SegmentName{Timeline: worldTimeline, First: first}.String()
}

func (w *world) get(name string) []byte {
	w.Helper()
	data, err := sinks.Get(w.Context(), w.sink, name, 1<<30)
	w.must(err)
	return data
}

func (w *world) put(name string, data []byte) {
	w.Helper()
	w.remove(name)
	_, err := sinks.Put(w.Context(), w.sink, name, data, sinks.CreateOptions{})
	w.must(err)
}

func (w *world) remove(name string) {
	w.Helper()
	w.must(w.sink.Delete(w.Context(), name))
}

// flip flips one bit: of the byte at, from the end where it is negative.
func (w *world) flip(name string, at int) {
	w.Helper()
	data := bytes.Clone(w.get(name))
	if at < 0 {
		at += len(data)
	}
	data[at] ^= 4
	w.put(name, data)
}

// reseal alters a document and seals it anew.
func reseal[T any](w *world, name string, alter func(*T)) {
	w.Helper()
	var v T
	w.must(repository.Unseal(w.get(name), &v))
	alter(&v)
	data, err := repository.Seal(v)
	w.must(err)
	w.put(name, data)
}

// one is the first object whose name begins so.
func (w *world) one(prefix string) string {
	w.Helper()
	return w.names(prefix)[0]
}

// names are those of all objects whose names begin so: one at least.
func (w *world) names(prefix string) (names []string) {
	w.Helper()
	for o, err := range w.sink.List(w.Context(), prefix, "") {
		w.must(err)
		names = append(names, o.Name)
	}
	if len(names) == 0 {
		w.Fatalf("nothing begins with %s", prefix)
	}
	return names
}

// verify runs the request, for all at the checksum level where it does not say.
func (w *world) verify(req Request) *report.Report {
	w.Helper()
	if req.Backup == "" {
		req.Backup = All
	}
	if req.Level == "" {
		req.Level = report.Checksum
	}
	req.Identities, req.ScratchDir = w.keys, w.TempDir()
	r, err := Repository(w.Context(), w.repo, req)
	w.must(err)
	return r
}

// reopen reads the marker anew.
func (w *world) reopen() {
	w.Helper()
	repo, err := repository.Open(w.Context(), w.sink)
	w.must(err)
	w.repo = repo
}

// kinds are the findings, each as "kind object", sorted.
func kinds(r *report.Report) []string {
	all := []string{}
	for _, f := range r.Findings() {
		all = append(all, fmt.Sprintf("%s %s", f.Kind, strings.TrimPrefix(f.Object, worldTimeline.String()+"/")))
	}
	slices.Sort(all)
	return all
}

// wantKinds fails the test unless the findings are these.
func wantKinds(t *testing.T, r *report.Report, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := kinds(r); !slices.Equal(got, want) {
		t.Errorf("found\n  %s\nwant\n  %s\n%+v", strings.Join(got, "\n  "), strings.Join(want, "\n  "), r.Findings())
	}
	status := report.Passed
	if len(want) > 0 {
		status = report.Damaged
	}
	if r.Status() != status {
		t.Errorf("status %s, want %s: %+v", r.Status(), status, r.Checks)
	}
}

// onMemory is a sink for one test.
func onMemory() sinks.Sink { return sinktest.NewMemory() }

// chainAt is the chain's value at an index of history a.
func (w *world) chainAt(index uint64) raftlog.Sum {
	var sum raftlog.Sum
	for _, e := range entriesOf("a", 1, index) {
		sum = sum.Next(e)
	}
	return sum
}

// encodeAfter makes a segment that goes on from a value.
func (w *world) encodeAfter(history string, before raftlog.Sum, first, last uint64) (segment.Header, []byte) {
	w.Helper()
	return w.encodeIn(worldTimeline, history, before, first, last)
}

// encodeIn is encodeAfter for a timeline.
func (w *world) encodeIn(id repository.TimelineID, history string, before raftlog.Sum, first, last uint64) (segment.Header, []byte) {
	w.Helper()
	h, data, err := segment.Encode(w.Context(), id, before, false, segment.Batch{Entries: entriesOf(history, first, last)},
		segment.Meta{Member: 0xa2, Cut: worldStart}, segment.Options{Tool: "requorum test"})
	w.must(err)
	return h, data
}
