package recovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// keeper writes a repository from what members have, as agents would.
type keeper struct {
	t    *testing.T
	repo *repository.Repository
	id   repository.TimelineID
	sum  raftlog.Sum
	made int
}

func newKeeper(t *testing.T, cluster snapshot.ID) *keeper {
	t.Helper()
	sink, err := disk.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	repo, err := repository.Init(t.Context(), sink, begun)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{t: t, repo: repo}
	k.open(repository.TimelineID{ClusterID: uint64(cluster), N: 1}, nil)
	return k
}

// open opens a timeline and goes on with it.
func (k *keeper) open(id repository.TimelineID, parent *repository.Branch) {
	k.t.Helper()
	if err := k.repo.OpenTimeline(k.t.Context(), repository.Timeline{ID: id, Created: begun, Reason: "a test", Parent: parent}); err != nil {
		k.t.Fatal(err)
	}
	k.id, k.sum = id, raftlog.Sum{}
}

// full stores a member's database as it lies there.
func (k *keeper) full(s Survivor) {
	k.t.Helper()
	image, err := snapshot.OpenFile(filepath.Join(s.DataDir, "member", "snap", "db"))
	if err != nil {
		k.t.Fatal(err)
	}
	k.made++
	if _, err := snapshot.Store(k.t.Context(), snapshot.StoreRequest{
		Repo: k.repo, Timeline: k.id, ID: fmt.Sprintf("20260102T0304%02dZ-%06x", k.made, k.made), Image: image, Started: begun, Version: "3.6.0", Tool: "test",
	}); err != nil {
		k.t.Fatal(err)
	}
}

// archive stores the entries from first to last of a member's log.
func (k *keeper) archive(s Survivor, first, last uint64) {
	k.t.Helper()
	log, err := walfile.Open(filepath.Join(s.DataDir, "member", "wal"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	b := segment.Batch{}
	for e, err := range log.Entries(k.t.Context(), first) {
		if err != nil {
			k.t.Fatal(err)
		}
		if e.Index > last {
			break
		}
		b.Entries = append(b.Entries, e)
	}
	if n := len(b.Entries); n == 0 || b.Entries[n-1].Index != last {
		k.t.Fatalf("the log does not have %d to %d", first, last)
	}
	b.Marks = []raftlog.Mark{{Index: last, Term: b.Entries[len(b.Entries)-1].Term, Time: begun.Add(time.Minute), Member: log.Identity().MemberID}}
	h, data, err := segment.Encode(k.t.Context(), k.id, k.sum, k.sum == raftlog.Sum{}, b, segment.Meta{Member: snapshot.ID(log.Identity().MemberID), Cut: begun.Add(time.Minute)}, segment.Options{Tool: "test"})
	if err != nil {
		k.t.Fatal(err)
	}
	if err := segment.Put(k.t.Context(), k.repo.Sink(), h, data); err != nil {
		k.t.Fatal(err)
	}
	k.sum = h.After
}

func (k *keeper) survey(survivors ...Survivor) *Findings {
	k.t.Helper()
	req := SurveyRequest{Survivors: survivors, Repos: []*repository.Repository{k.repo}}
	f, err := Survey(k.t.Context(), req)
	if err != nil {
		k.t.Fatal(err)
	}
	if len(survivors) > 0 {
		checkDigests(k.t, req, f)
	}
	return f
}

// withoutDatabase makes a log useless by itself.
func withoutDatabase(t *testing.T, s Survivor) Survivor {
	t.Helper()
	if err := os.Remove(filepath.Join(s.DataDir, "member", "snap", "db")); err != nil {
		t.Fatal(err)
	}
	// As if the cluster had once been restored: the log does not begin with all.
	if err := os.WriteFile(filepath.Join(s.DataDir, "member", "snap", "0000000000000001-0000000000000003.snap"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// The archive fills what survivors lack, and they fill what it lacks, where both
// hold the same entry; it shows who was rolled back; and it never takes the place
// of another history.
func TestPromise2And6Archive(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 3})
	c.WaitReady(t)
	put(t, c, 20)
	old := quietCopy(t, c, 1)
	put(t, c, 40)
	time.Sleep(300 * time.Millisecond)
	killAll(c)
	m0 := survivorsOf(c, 0)[0]
	found := surveyed(t, m0, old).Survivors
	end, oldEnd := found[0].Log.LastIndex, found[1].Log.LastIndex
	if end < oldEnd+30 {
		t.Fatal(end, oldEnd)
	}

	k := newKeeper(t, found[0].ClusterID)
	k.archive(m0, 1, oldEnd+5)
	k.archive(m0, oldEnd+6, end-10)
	name := "archive:" + k.id.String()

	t.Run("archive extends a survivor", func(t *testing.T) {
		p := decide(t, k.survey(old), DecideRequest{}) // without a full snapshot the log alone is nothing
		got := p.Candidate(p.Chosen)
		if got.Kind != FromJoined || got.LastIndex != end-10 || got.Source.Base.Owner != old.Name || p.Proven {
			t.Fatalf("%+v", p)
		}
		if last := got.Source.Log[len(got.Source.Log)-1]; last.Owner != name || last.Last != end-10 {
			t.Errorf("%+v", got.Source)
		}
	})
	k.full(old)
	t.Run("archive alone", func(t *testing.T) {
		p := decide(t, k.survey(), DecideRequest{})
		if p.Chosen != name || p.Proven || !p.Bump.Raise || len(p.Members) != 3 || p.Candidate(name).LastIndex != end-10 || !strings.Contains(p.Why, "2026-01-02T03:05:05Z") {
			t.Errorf("%+v", p)
		}
		if p.Fence.Enough || len(p.Fence.Open) != 3 {
			t.Errorf("%+v", p.Fence)
		}
	})
	t.Run("survivor beyond the archive", func(t *testing.T) {
		p := decide(t, k.survey(m0), DecideRequest{})
		if p.Chosen != m0.Name || p.Candidate(name).Lost.Entries != 10 || p.Candidate(name).Rank != 2 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("survivor extends the archive", func(t *testing.T) {
		f := k.survey(withoutDatabase(t, copied(t, c, 0, m0.Name)))
		p := decide(t, f, DecideRequest{})
		got := p.Candidate(p.Chosen)
		if got.Kind != FromJoined || got.LastIndex != end || got.Source.Base.Backup == "" || got.Source.Log[len(got.Source.Log)-1].Owner != m0.Name {
			t.Errorf("%+v\n%+v", p.Candidates, f.Relations)
		}
	})
	t.Run("survivors fill each other", func(t *testing.T) {
		p := decide(t, surveyed(t, withoutDatabase(t, copied(t, c, 0, m0.Name)), old), DecideRequest{})
		got := p.Candidate(p.Chosen)
		if got.Kind != FromJoined || got.LastIndex != end || got.Source.Base.Owner != old.Name || !p.Proven {
			t.Errorf("%+v", p)
		}
	})
	t.Run("rolled back", func(t *testing.T) {
		k := newKeeper(t, found[0].ClusterID)
		k.full(old)
		k.archive(survivorsOf(c, 1)[0], 1, end-10) // from the log of the member that is an old copy now
		p := decide(t, k.survey(old, survivorsOf(c, 2)[0]), DecideRequest{})
		if p.Proven || !has(p.Candidate(old.Name).Findings, KindRolledBack) || !strings.Contains(p.Why, "rolled back") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("timelines", func(t *testing.T) {
		k.open(repository.TimelineID{ClusterID: 99, N: 1}, nil)
		k.full(old)
		other := "archive:" + k.id.String()
		_, err := Decide(k.survey(), DecideRequest{})
		var need *NeedSourceError
		if !errors.As(err, &need) || len(need.Histories) != 2 {
			t.Fatalf("two timelines: %v", err)
		}
		if p := decide(t, k.survey(), DecideRequest{Source: k.id.String()}); p.Chosen != other || p.Proven {
			t.Errorf("%+v", p)
		}
		if p := decide(t, k.survey(m0), DecideRequest{}); p.Chosen != m0.Name || p.Candidate(other).Rank != 0 || !has(p.Candidate(other).Findings, KindCluster) {
			t.Errorf("%+v", p)
		}
		first := repository.TimelineID{ClusterID: uint64(found[0].ClusterID), N: 1}
		if err := k.repo.Supersede(t.Context(), repository.Superseded{Timeline: first, By: k.id, Reason: "recovered", Created: begun}); err != nil {
			t.Fatal(err)
		}
		if p := decide(t, k.survey(), DecideRequest{}); p.Chosen != other {
			t.Errorf("%+v", p)
		}
		_, err = Decide(k.survey(m0), DecideRequest{})
		if !errors.As(err, &need) || !strings.Contains(err.Error(), "superseded") {
			t.Errorf("a survivor of a timeline that has ended: %v", err)
		}
	})
	t.Run("repository away", func(t *testing.T) {
		if err := os.RemoveAll(strings.TrimPrefix(k.repo.String(), "file://")); err != nil {
			t.Fatal(err)
		}
		f := k.survey(m0)
		p := decide(t, f, DecideRequest{})
		if p.Chosen != m0.Name || len(f.Unread)+len(f.Archives) > 1 || slices.ContainsFunc(p.Candidates, func(c Candidate) bool { return c.Kind == FromArchive && c.Source != nil }) {
			t.Errorf("%+v", p)
		}
	})
}
