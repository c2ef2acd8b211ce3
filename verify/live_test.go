package verify_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// lying is a member that gives another hash.
type lying struct{ *client.Client }

func (l lying) HashKV(ctx context.Context, m client.MemberStatus, revision int64) (client.HashKV, error) {
	h, err := l.Client.HashKV(ctx, m, revision)
	h.Hash ^= 1
	return h, err
}

// A backup's hash is the live member's, whatever came later, and also where the
// cluster has compacted up to it since; behind a later compaction nothing can be
// compared, and that is no damage.
func TestAgainstLiveMember(t *testing.T) {
	m := newMember(t)
	cli, err := client.Dial(t.Context(), client.Config{Endpoints: m.cluster.Endpoints()})
	require.NoError(t, err)
	defer cli.Close()
	sink := sinktest.NewMemory()
	take := func() {
		t.Helper()
		if _, err := snapshot.Take(t.Context(), snapshot.Request{Client: cli, Sinks: []sinks.Sink{sink}, Tool: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	take()
	repo, err := repository.Open(t.Context(), sink)
	require.NoError(t, err)
	live := func(l verify.Live) report.Check {
		t.Helper()
		r, err := verify.Repository(t.Context(), repo, verify.Request{Live: l, ScratchDir: t.TempDir()})
		require.NoError(t, err)
		for _, c := range r.Checks {
			if strings.HasSuffix(c.Object, "/live") {
				return c
			}
		}
		t.Fatalf("no check against the live member: %+v", r.Checks)
		return report.Check{}
	}
	want := func(what string, c report.Check, status report.Status, text string) {
		t.Helper()
		all := c.Reason + c.Compared
		for _, f := range c.Findings {
			all += string(f.Kind) + ": " + f.Text
		}
		if c.Status != status || !strings.Contains(all, text) {
			t.Errorf("%s: %+v, want %s and %q", what, c, status, text)
		}
	}
	want("at head", live(cli), report.Passed, "compacted at -1")
	want("another hash", live(lying{cli}), report.Damaged, "hash: the backup's HashKV")
	m.load(100)
	want("after more writes", live(cli), report.Passed, "at revision 201")
	for _, revision := range []int64{100, 170} {
		if _, err := m.kv.Compact(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		want("compacted since", live(cli), report.Passed, "revision 201")
	}
	want("another hash, compacted", live(lying{cli}), report.Damaged, "hash: the backup's HashKV")
	if _, err := m.kv.Compact(t.Context(), 250); err != nil {
		t.Fatal(err)
	}
	want("compacted beyond it", live(cli), report.Unchecked, "verify a newer backup")

	other := newMember(t)
	stranger, err := client.Dial(t.Context(), client.Config{Endpoints: other.cluster.Endpoints()})
	require.NoError(t, err)
	defer stranger.Close()
	want("another cluster", live(stranger), report.Unchecked, "give endpoints of its cluster")

	// A cluster keeps its ID over --force-new-cluster, and over a restore with the
	// same token, and gives the same revisions out again.
	first := timelinesOf(t, repo)[0]
	second := repository.TimelineID{ClusterID: first.ClusterID, N: first.N + 1}
	require.NoError(t, repo.OpenTimeline(t.Context(), repository.Timeline{ID: second, Created: time.Now(), Reason: "restore"}))
	take() // of revision 301, which is not compacted
	want("the same hash with another timeline", live(cli), report.Passed, "HashKV of the backup")
	want("another hash with another timeline", live(lying{cli}), report.Unchecked, "timeline "+second.String()+" is of a cluster with the same ID")
	require.NoError(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: first, By: second, Created: time.Now()}))
	want("another hash, superseded", live(lying{cli}), report.Unchecked, "timeline "+first.String()+" has ended, and "+second.String()+" goes on")

	// What was asked for and cannot be done is never left out.
	if _, err := verify.Repository(t.Context(), repo, verify.Request{Level: report.Checksum, Live: cli}); err == nil || !strings.Contains(err.Error(), "a live member is asked on the level structure") {
		t.Errorf("on the level checksum: %v", err)
	}
	spoil(t, sink)
	want("a damaged backup", live(cli), report.Unchecked, "see the level checksum")
}

func timelinesOf(t *testing.T, repo *repository.Repository) []repository.TimelineID {
	t.Helper()
	ids, err := repo.TimelineIDs(t.Context())
	if err != nil || len(ids) == 0 {
		t.Fatalf("timelines %v, %v", ids, err)
	}
	return ids
}

// spoil flips a bit in each snapshot.
func spoil(t *testing.T, s sinks.Sink) {
	t.Helper()
	for o, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		if !strings.HasSuffix(o.Name, "/snapshot.zst") {
			continue
		}
		data, err := sinks.Get(t.Context(), s, o.Name, 1<<30)
		require.NoError(t, err)
		data[len(data)/2] ^= 1
		require.NoError(t, s.Delete(t.Context(), o.Name))
		if _, err := sinks.Put(t.Context(), s, o.Name, data, sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
