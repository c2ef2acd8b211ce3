package sources

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// timeOf is when an entry was seen.
func timeOf(index uint64) time.Time { return begun.Add(time.Duration(index) * time.Second) }

// keeper writes a repository from what members have, as agents would.
type keeper struct {
	t     *testing.T
	repo  *repository.Repository
	id    repository.TimelineID
	codec codec.Options
	sum   raftlog.Sum
	made  int
	etcd  string
	seen  func(index uint64) time.Time // when an entry was seen
}

func newKeeper(t *testing.T, cluster snapshot.ID, version string, recipients ...age.Recipient) *keeper {
	t.Helper()
	sink, err := disk.New(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { sink.Close() })
	repo, err := repository.Init(t.Context(), sink, begun)
	require.NoError(t, err)
	k := &keeper{t: t, repo: repo, etcd: version, seen: timeOf, codec: codec.Options{Recipients: recipients}}
	k.open(repository.TimelineID{ClusterID: uint64(cluster), N: 1}, nil)
	return k
}

// open opens a timeline and goes on with it.
func (k *keeper) open(id repository.TimelineID, parent *repository.Branch) {
	k.t.Helper()
	require.NoError(k.t, k.repo.OpenTimeline(k.t.Context(), repository.Timeline{ID: id, Created: begun, Reason: "a test", Parent: parent}))
	k.id, k.sum = id, raftlog.Sum{}
}

// owner is how a survey calls what is kept.
func (k *keeper) owner() string { return ArchivePrefix + k.id.String() }

// full stores a member's database as it lies there.
func (k *keeper) full(s Survivor) Base {
	k.t.Helper()
	image, err := snapshot.OpenFile(filepath.Join(s.DataDir, "member", "snap", "db"))
	require.NoError(k.t, err)
	facts, err := image.Facts(k.t.Context())
	require.NoError(k.t, err)
	k.made++
	m := logtest.Full(k.t, k.repo, image, logtest.Stored{
		Timeline: k.id, ID: fmt.Sprintf("20260102T0304%02dZ-%06x", k.made, k.made),
		Started: timeOf(facts.RaftIndex), Version: k.etcd, Codec: k.codec,
	})
	return Base{Owner: k.owner(), Backup: m.ID, Timeline: k.id, Repository: k.repo.String(), Index: facts.RaftIndex, Term: facts.RaftTerm, Revision: facts.Revision}
}

// archive stores the entries from first to last of a member's log, with a mark for
// each, or others in their place where change is not nil.
func (k *keeper) archive(s Survivor, first, last uint64, change func(*raftlog.Entry)) {
	k.t.Helper()
	log, err := walfile.Open(filepath.Join(s.DataDir, "member", "wal"))
	require.NoError(k.t, err)
	b := segment.Batch{}
	for e, err := range log.Entries(k.t.Context(), first) {
		require.NoError(k.t, err)
		if e.Index > last {
			break
		}
		if change != nil {
			change(&e)
		}
		b.Entries = append(b.Entries, e)
		b.Marks = append(b.Marks, raftlog.Mark{Index: e.Index, Term: e.Term, Time: k.seen(e.Index), Member: log.Identity().MemberID})
	}
	if n := len(b.Entries); n == 0 || b.Entries[n-1].Index != last {
		k.t.Fatalf("the log does not have %d to %d", first, last)
	}
	h, data, err := segment.Encode(k.t.Context(), k.id, k.sum, k.sum == raftlog.Sum{}, b, segment.Meta{Member: snapshot.ID(log.Identity().MemberID), Cut: k.seen(last)}, segment.Options{Tool: "test", Codec: k.codec})
	require.NoError(k.t, err)
	require.NoError(k.t, segment.Put(k.t.Context(), k.repo, h, data))
	k.sum = h.After
}

func (k *keeper) survey(survivors ...Survivor) *Findings {
	k.t.Helper()
	return surveyOf(k.t, SurveyRequest{Summaries: summaries(k.t, survivors...), Repos: []*repository.Repository{k.repo}})
}
