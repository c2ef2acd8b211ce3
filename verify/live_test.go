package verify_test

import (
	"context"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// lying is a member that gives another hash.
type lying struct{ *store.Client }

func (l lying) HashKV(ctx context.Context, m store.MemberStatus, revision int64) (store.HashKV, error) {
	h, err := l.Client.HashKV(ctx, m, revision)
	h.Hash ^= 1
	return h, err
}

// A backup's hash is the live member's, whatever came later, and also where the
// cluster has compacted up to it since; behind a later compaction nothing can be
// compared, and that is no damage.
func TestAgainstLiveMember(t *testing.T) {
	m := newMember(t)
	client, err := store.Dial(t.Context(), store.ClientConfig{Endpoints: m.cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	sink := sinktest.NewMemory()
	if _, err := snapshot.Take(t.Context(), snapshot.Request{Client: client, Sinks: []sinks.Sink{sink}, Tool: "test"}); err != nil {
		t.Fatal(err)
	}
	repo, err := repository.Open(t.Context(), sink)
	if err != nil {
		t.Fatal(err)
	}
	live := func(l verify.Live) report.Check {
		t.Helper()
		r, _, err := verify.Repository(t.Context(), repo, verify.Request{Live: l, ScratchDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
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
	want("at head", live(client), report.Passed, "compacted at -1")
	want("another hash", live(lying{client}), report.Damaged, "hash: the backup's HashKV")
	m.load(100)
	want("after more writes", live(client), report.Passed, "at revision 201")
	for _, revision := range []int64{100, 170} {
		if _, err := m.kv.Compact(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		want("compacted since", live(client), report.Passed, "revision 201")
	}
	want("another hash, compacted", live(lying{client}), report.Damaged, "hash: the backup's HashKV")
	if _, err := m.kv.Compact(t.Context(), 250); err != nil {
		t.Fatal(err)
	}
	want("compacted beyond it", live(client), report.Unchecked, "verify a newer backup")

	other := newMember(t)
	stranger, err := store.Dial(t.Context(), store.ClientConfig{Endpoints: other.cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	want("another cluster", live(stranger), report.Unchecked, "give endpoints of its cluster")
}
