package verify_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// clusterHistory is what a cluster of real members wrote.
type clusterHistory struct {
	Timeline repository.TimelineID
	Parent   *repository.Branch // where its timeline begins, if it branched off
	Backups  []recordedBackup   // from the oldest state to the newest
	Entries  []raftlog.Entry
	Marks    []raftlog.Mark
}

// recordedBackup is a database with the manifest that was written when it was taken.
type recordedBackup struct {
	Manifest snapshot.Manifest
	Database []byte
}

// recorder takes backups of a cluster, and at the end its log.
type recorder struct {
	cluster *storetest.Cluster
	repo    *repository.Repository
	history clusterHistory
}

// newRecorder records what a cluster does.
func newRecorder(t testing.TB, c *storetest.Cluster) *recorder {
	t.Helper()
	sink, err := disk.New(filepath.Join(t.TempDir(), "recorded"))
	must(t, err)
	repo, err := repository.Init(t.Context(), sink, time.Now())
	must(t, err)
	t.Cleanup(func() { shut(t, sink) })
	return &recorder{cluster: c, repo: repo}
}

// backup takes a full snapshot, with the hash that the member serves. Under a
// mixed load authentication comes and goes, and with it the right to take one.
func (r *recorder) backup(t testing.TB) {
	t.Helper()
	config := r.cluster.ClientConfig()
	config.User, config.Password = storetest.RootUser, storetest.RootPassword
	storetest.Eventually(t, "a backup is taken", func() error {
		m, err := r.take(t, config)
		if err == nil {
			r.keep(t, m)
		}
		return err
	})
}

func (r *recorder) take(t testing.TB, config client.Config) (*snapshot.Manifest, error) {
	client, err := client.Dial(t.Context(), config)
	if err != nil {
		return nil, err
	}
	defer shut(t, client)
	result, err := snapshot.Take(t.Context(), snapshot.Request{
		Client: client, Sink: r.repo.Sink(), Tool: tool, HashKV: true, Timeline: r.history.Timeline,
	})
	if err != nil {
		return nil, err
	}
	return result.Manifest, nil
}

func (r *recorder) keep(t testing.TB, m *snapshot.Manifest) {
	t.Helper()
	in, err := snapshot.OpenStored(r.repo, m).Open(t.Context())
	must(t, err)
	defer shut(t, in)
	database, err := io.ReadAll(in)
	must(t, err)
	r.history.Timeline = m.Timeline
	r.history.Backups = append(r.history.Backups, recordedBackup{Manifest: *m, Database: database})
}

// mark observes the first member, as an archiver does. Nothing may be written meanwhile.
func (r *recorder) mark(t testing.TB) {
	t.Helper()
	client := r.cluster.Client(t, 0)
	endpoint := r.cluster.Member(0).ClientURL
	_, err := client.Get(t.Context(), "/") // the member has applied all
	must(t, err)
	status, err := client.Status(t.Context(), endpoint)
	must(t, err)
	r.history.Marks = append(r.history.Marks, raftlog.Mark{
		Index: status.RaftAppliedIndex, Term: status.RaftTerm, Time: time.Now(), Member: status.Header.MemberId, Revision: status.Header.Revision,
	})
}

// end stops the cluster and reads the log of its first member.
func (r *recorder) end(t testing.TB) *clusterHistory {
	t.Helper()
	r.cluster.StopAll()
	log, err := walfile.Open(filepath.Join(r.cluster.Member(0).DataDir, "member", "wal"))
	must(t, err)
	for e, err := range log.Entries(t.Context(), 0) {
		must(t, err)
		e.Data = bytes.Clone(e.Data)
		r.history.Entries = append(r.history.Entries, e)
	}
	done := r.history
	r.history.Entries = nil
	return &done
}

// branch goes on with another timeline of the same cluster, which was started
// anew.
func (r *recorder) branch(t testing.TB) {
	t.Helper()
	id := repository.TimelineID{ClusterID: r.history.Timeline.ClusterID, N: r.history.Timeline.N + 1}
	must(t, r.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: id, Created: time.Now(), Reason: "a test"}))
	r.history = clusterHistory{Timeline: id}
}

// after is a history without what it has in common with the one before it.
func (h *clusterHistory) after(parent *clusterHistory) *clusterHistory {
	n := 0
	var sum raftlog.Sum
	for n < min(len(h.Entries), len(parent.Entries)) && h.Entries[n].Equal(parent.Entries[n]) {
		sum = sum.Next(h.Entries[n])
		n++
	}
	h.Entries = h.Entries[n:]
	h.Parent = &repository.Branch{Timeline: parent.Timeline, RaftIndex: uint64(n), Chain: sum.String()}
	return h
}

func shut(t testing.TB, c io.Closer) {
	t.Helper()
	must(t, c.Close())
}

func must(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

// layout says how a repository is written from a history. The zero value is
// good.
type layout struct {
	encrypted bool
	// Cut is how many entries a segment has; 0 is segmentEntries.
	cut int
	// Merged of the first segments are there as one of level 1 as well, or, with
	// Replaced, instead.
	merged   int
	replaced bool
	// Pruned of the first segments are gone, with the backups that they joined.
	pruned int
}

// segmentEntries makes several segments of what scripted writes.
const segmentEntries = 20

const tool = "requorum test"

// write makes a repository in a folder of the test.
func (h *clusterHistory) write(t testing.TB, l layout) *recorded {
	t.Helper()
	r := &recorded{dir: filepath.Join(t.TempDir(), "repo"), timeline: h.Timeline}
	if l.encrypted {
		key, err := age.GenerateX25519Identity()
		must(t, err)
		r.identities, r.recipients = []age.Identity{key}, []age.Recipient{key.Recipient()}
	}
	sink, err := disk.New(r.dir)
	must(t, err)
	defer shut(t, sink)
	repo, err := repository.Init(t.Context(), sink, h.Backups[0].Manifest.Started)
	must(t, err)
	h.fill(t, r, repo, l)
	return r
}

// writeBeside adds a history on another timeline to a repository.
func (h *clusterHistory) writeBeside(t testing.TB, r *recorded, l layout) {
	t.Helper()
	beside := *r
	beside.timeline, beside.backups = h.Timeline, nil
	h.fill(t, &beside, r.open(t), l)
}

func (h *clusterHistory) fill(t testing.TB, r *recorded, repo *repository.Repository, l layout) {
	t.Helper()
	_, err := repo.EnsureTimeline(t.Context(), repository.Timeline{ID: h.Timeline, Created: h.Backups[0].Manifest.Started, Reason: "first backup", Parent: h.Parent})
	must(t, err)
	if l.cut == 0 {
		l.cut = segmentEntries
	}
	for _, b := range h.Backups {
		if b.Manifest.Facts.RaftIndex < uint64(l.pruned*l.cut) {
			continue
		}
		r.backups = append(r.backups, b.Manifest.ID)
		m := b.Manifest
		r.storeRaw(t, &m, b.Database)
	}
	r.writeLog(t, h.Entries, l.cut)
	for _, m := range h.Marks {
		must(t, segment.WriteMark(t.Context(), repo, h.Timeline, m))
	}
	if l.merged > 0 {
		r.merge(t, h.Entries, l)
	}
	for _, name := range r.segments(t, 0)[:max(0, l.pruned-l.removed())] {
		r.remove(t, name)
	}
}

// removed is how many of the first segments merging took away.
func (l layout) removed() int {
	if l.replaced {
		return l.merged
	}
	return 0
}

// writeLog stores entries as segments of n entries, of one chain. A log that was
// there is replaced.
func (r *recorded) writeLog(t testing.TB, entries []raftlog.Entry, n int) {
	t.Helper()
	for _, level := range []int{0, 1} {
		for _, name := range r.segments(t, level) {
			r.remove(t, name)
		}
	}
	var sum raftlog.Sum
	for chainStart := true; len(entries) > 0; chainStart = false {
		part := entries[:min(n, len(entries))]
		entries = entries[len(part):]
		h, data := r.encode(t, r.timeline, sum, chainStart, part, 0)
		r.write(t, h.Name(), data)
		sum = h.After
	}
}

// encode makes a segment, encrypted where the others are.
func (r *recorded) encode(t testing.TB, id repository.TimelineID, before raftlog.Sum, chainStart bool, entries []raftlog.Entry, level int) (segment.Header, []byte) {
	t.Helper()
	b := segment.Batch{Entries: entries}
	h, data, err := segment.Encode(t.Context(), id, before, chainStart, b, segment.Meta{Member: 1, Cut: time.Now()},
		segment.Options{Codec: codec.Options{Recipients: r.recipients}, Tool: tool, Level: level})
	must(t, err)
	return h, data
}

func (r *recorded) merge(t testing.TB, entries []raftlog.Entry, l layout) {
	t.Helper()
	h, data := r.encode(t, r.timeline, raftlog.Sum{}, true, entries[:l.merged*l.cut], 1)
	if l.replaced {
		for _, name := range r.segments(t, 0)[:l.merged] {
			r.remove(t, name)
		}
	}
	r.write(t, h.Name(), data)
}

// recorded is a repository on disk that may be damaged.
type recorded struct {
	dir        string
	timeline   repository.TimelineID
	backups    []string // their IDs, from the oldest state to the newest
	identities []age.Identity
	recipients []age.Recipient
}

// clone is a copy in a folder of the test.
func (r *recorded) clone(t testing.TB) *recorded {
	t.Helper()
	c := *r
	c.dir = filepath.Join(t.TempDir(), "repo")
	must(t, os.CopyFS(c.dir, os.DirFS(r.dir)))
	return &c
}

// open opens it, until the test ends.
func (r *recorded) open(t testing.TB) *repository.Repository {
	t.Helper()
	sink, err := disk.New(r.dir)
	must(t, err)
	t.Cleanup(func() { shut(t, sink) })
	repo, err := repository.Open(t.Context(), sink)
	must(t, err)
	return repo
}

// encrypted reports whether its objects are.
func (r *recorded) encrypted() bool { return len(r.recipients) > 0 }

// fingerprint is a sum over all names and bytes.
func (r *recorded) fingerprint(t testing.TB) string {
	t.Helper()
	sum := sha256.New()
	for _, name := range r.names(t, "") {
		fmt.Fprintf(sum, "%s %x\n", name, sha256.Sum256(r.read(t, name)))
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// names are those of all objects that begin so, sorted.
func (r *recorded) names(t testing.TB, prefix string) []string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.dir, path)
		if name = filepath.ToSlash(name); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return err
	}))
	slices.Sort(names)
	return names
}

func (r *recorded) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

// read is an object as it is stored.
func (r *recorded) read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(r.path(name))
	must(t, err)
	return data
}

// write puts an object in its place, whatever was there.
func (r *recorded) write(t testing.TB, name string, data []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o700))
	must(t, os.WriteFile(r.path(name), data, 0o600))
}

// remove takes an object away.
func (r *recorded) remove(t testing.TB, name string) {
	t.Helper()
	must(t, os.Remove(r.path(name)))
}

// removeAll takes away what begins so: something has to.
func (r *recorded) removeAll(t testing.TB, prefix string) {
	t.Helper()
	names := r.names(t, prefix)
	if len(names) == 0 {
		t.Fatalf("nothing begins with %s", prefix)
	}
	for _, name := range names {
		r.remove(t, name)
	}
}

// manifestName is the name of a backup's manifest.
func (r *recorded) manifestName(i int) string {
	return repository.ManifestName(r.timeline, r.backups[i])
}

// manifest is that of a backup.
func (r *recorded) manifest(t testing.TB, i int) *snapshot.Manifest {
	t.Helper()
	var m snapshot.Manifest
	must(t, repository.Unseal(r.read(t, r.manifestName(i)), &m))
	return &m
}

// reseal alters a document, and seals it anew.
func reseal[T any](t testing.TB, r *recorded, name string, alter func(*T)) {
	t.Helper()
	var v T
	must(t, repository.Unseal(r.read(t, name), &v))
	alter(&v)
	data, err := repository.Seal(v)
	must(t, err)
	r.write(t, name, data)
}

// segments are the segments of a level, by their first index.
func (r *recorded) segments(t testing.TB, level int) []string {
	t.Helper()
	return r.names(t, fmt.Sprintf("%s/l%d/", r.timeline, level))
}

// log is what the segments of level 0 hold.
func (r *recorded) log(t testing.TB) []raftlog.Entry {
	t.Helper()
	repo := r.open(t)
	var all []raftlog.Entry
	for _, name := range r.segments(t, 0) {
		_, b, err := segment.Read(t.Context(), repo, name, r.identities...)
		must(t, err)
		all = append(all, b.Entries...)
	}
	return all
}

// verify verifies it with its own identities.
func (r *recorded) verify(t testing.TB, req verify.Request) *report.Report {
	t.Helper()
	req.Identities, req.ScratchDir, req.Tool = r.identities, t.TempDir(), tool
	found, err := verify.Repository(t.Context(), r.open(t), req)
	must(t, err)
	return found
}
