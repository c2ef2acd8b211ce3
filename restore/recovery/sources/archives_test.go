package sources

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/logtest"
)

// withoutDatabase makes a log useless by itself.
func withoutDatabase(t *testing.T, s Survivor) Survivor {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(s.DataDir, "member", "snap", "db")))
	// As if the cluster had once been restored: the log does not begin with all.
	logtest.RecordSnapshot(t, filepath.Join(s.DataDir, "member", "wal"), 3, 1)
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
	c.WriteOut(t, 0)
	waitEqual(t, c, 0, 1) // the archive is written from its log too
	c.KillAll()
	m0 := survivorsOf(c, 0)[0]
	found := surveyed(t, m0, old).Survivors
	end, oldEnd := found[0].Log.LastIndex, found[1].Log.LastIndex
	if end < oldEnd+30 {
		t.Fatal(end, oldEnd)
	}

	k := newKeeper(t, found[0].ClusterID, "3.6.0")
	k.seen = func(uint64) time.Time { return begun.Add(time.Minute) }
	k.archive(m0, 1, oldEnd+5, nil)
	k.archive(m0, oldEnd+6, end-10, nil)
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
		if got.Kind != FromJoined || got.LastIndex != end || got.Source.Base.Owner != old.Name || p.Proven || !strings.Contains(p.Why, m0.Name+" does not count") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("rolled back", func(t *testing.T) {
		k := newKeeper(t, found[0].ClusterID, "3.6.0")
		k.full(old)
		k.archive(survivorsOf(c, 1)[0], 1, end-10, nil) // from the log of the member that is an old copy now
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
		require.NoError(t, k.repo.Supersede(t.Context(), repository.Superseded{Timeline: first, By: k.id, Reason: "recovered", Created: begun}))
		if p := decide(t, k.survey(), DecideRequest{}); p.Chosen != other {
			t.Errorf("%+v", p)
		}
		_, err = Decide(k.survey(m0), DecideRequest{})
		if !errors.As(err, &need) || !strings.Contains(err.Error(), "superseded") {
			t.Errorf("a survivor of a timeline that has ended: %v", err)
		}
	})
	t.Run("repository away", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(strings.TrimPrefix(k.repo.String(), "file://")))
		f := k.survey(m0)
		p := decide(t, f, DecideRequest{})
		if p.Chosen != m0.Name || len(f.Unread)+len(f.Archives) > 1 || slices.ContainsFunc(p.Candidates, func(c Candidate) bool { return c.Kind == FromArchive && c.Source != nil }) {
			t.Errorf("%+v", p)
		}
	})
}
