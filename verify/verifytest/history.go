package verifytest

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// History is what a cluster of real members wrote.
type History struct {
	Timeline repository.TimelineID
	Parent   *repository.Branch // where its timeline begins, if it branched off
	Backups  []Backup           // from the oldest state to the newest
	Entries  []raftlog.Entry
	Stamps   []Stamp
}

// Backup is a database with the manifest that was written when it was taken.
type Backup struct {
	Manifest snapshot.Manifest
	Database []byte
}

// Stamp is the hash that a live member served at an index.
type Stamp struct {
	Mark  raftlog.Mark
	Stamp segment.Stamp
}

// Recorder takes backups of a cluster, and at the end its log.
type Recorder struct {
	cluster *storetest.Cluster
	repo    *repository.Repository
	history History
}

// NewRecorder records what a cluster does.
func NewRecorder(t testing.TB, c *storetest.Cluster) *Recorder {
	t.Helper()
	sink, err := disk.New(filepath.Join(t.TempDir(), "recorded"))
	must(t, err)
	repo, err := repository.Init(t.Context(), sink, time.Now())
	must(t, err)
	t.Cleanup(func() { shut(t, sink) })
	return &Recorder{cluster: c, repo: repo}
}

// Backup takes a full snapshot, with the hash that the member serves. Under a
// mixed load authentication comes and goes, and with it the right to take one.
func (r *Recorder) Backup(t testing.TB) {
	t.Helper()
	config := r.cluster.ClientConfig()
	config.User, config.Password = storetest.RootUser, storetest.RootPassword
	const tries = 30
	for i := range tries {
		m, err := r.take(t, config)
		if err == nil {
			r.keep(t, m)
			return
		}
		if i == tries-1 {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (r *Recorder) take(t testing.TB, config store.ClientConfig) (*snapshot.Manifest, error) {
	client, err := store.Dial(t.Context(), config)
	if err != nil {
		return nil, err
	}
	defer shut(t, client)
	result, err := snapshot.Take(t.Context(), snapshot.Request{
		Client: client, Sinks: []sinks.Sink{r.repo.Sink()}, Tool: tool, HashKV: true, Timeline: r.history.Timeline,
	})
	if err != nil {
		return nil, err
	}
	return result.Outcomes[0].Manifest, result.Outcomes[0].Err
}

func (r *Recorder) keep(t testing.TB, m *snapshot.Manifest) {
	t.Helper()
	in, err := snapshot.OpenStored(r.repo, m).Open(t.Context())
	must(t, err)
	defer shut(t, in)
	database, err := io.ReadAll(in)
	must(t, err)
	r.history.Timeline = m.Timeline
	r.history.Backups = append(r.history.Backups, Backup{Manifest: *m, Database: database})
}

// Stamp asks the first member for its hash. Nothing may be written meanwhile.
func (r *Recorder) Stamp(t testing.TB) {
	t.Helper()
	client := r.cluster.Client(t, 0)
	endpoint := r.cluster.Member(0).ClientURL
	_, err := client.Get(t.Context(), "/") // the member has applied all
	must(t, err)
	hash, err := client.HashKV(t.Context(), endpoint, 0)
	must(t, err)
	status, err := client.Status(t.Context(), endpoint)
	must(t, err)
	r.history.Stamps = append(r.history.Stamps, Stamp{
		Mark:  raftlog.Mark{Index: status.RaftAppliedIndex, Term: status.RaftTerm, Time: time.Now(), Member: status.Header.MemberId, Revision: status.Header.Revision},
		Stamp: segment.Stamp{Hash: hash.Hash, HashRevision: hash.HashRevision, CompactedRevision: hash.CompactRevision},
	})
}

// End stops the cluster and reads the log of its first member.
func (r *Recorder) End(t testing.TB) *History {
	t.Helper()
	r.cluster.StopAll()
	log, err := walfile.Open(filepath.Join(r.cluster.Member(0).DataDir, "member", "wal"))
	must(t, err)
	defer shut(t, log)
	for e, err := range log.Entries(t.Context(), 0) {
		must(t, err)
		r.history.Entries = append(r.history.Entries, e)
	}
	done := r.history
	r.history.Entries = nil
	return &done
}

// Branch goes on with another timeline of the same cluster, which was started
// anew.
func (r *Recorder) Branch(t testing.TB) {
	t.Helper()
	id := repository.TimelineID{ClusterID: r.history.Timeline.ClusterID, N: r.history.Timeline.N + 1}
	must(t, r.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: id, Created: time.Now(), Reason: "a test"}))
	r.history = History{Timeline: id}
}

// after is a history without what it has in common with the one before it.
func (h *History) after(parent *History) *History {
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
	if err != nil {
		t.Fatal(err)
	}
}
