package replaying

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// checkNewest replays what is behind the newest backup, and wants that what it
// gives is handed over exactly where the check passed, and nothing else is left.
func (r *rig) checkNewest() Newest {
	r.t.Helper()
	n, err := CheckNewest(r.t.Context(), r.repo, r.catalog(), r.id, r.o)
	require.NoError(r.t, err)
	if n.LogAfter != (n.Check.Object == r.id.String()+"/log") || (n.Rebuilt != nil) != (n.Check.Status == report.Passed) {
		r.t.Errorf("%+v", n)
	}
	if n.Rebuilt != nil {
		r.t.Cleanup(func() { n.Rebuilt.Close() })
	} else {
		r.empty()
	}
	return n
}

// The log behind the newest backup is applied to its end: what comes out is the
// state that all entries give from nothing.
func TestNewestIsReplayed(t *testing.T) {
	c := newChain(t)
	for i := range 6 {
		c.put(fmt.Sprintf("/tail%d", i), "x")
	}
	c.archive(c.entries, 4)
	last := uint64(len(c.entries))
	n := c.checkNewest()
	expectPassed(t, n.Check, fmt.Sprintf("the 7 entries of the log after backup %s", c.ids[2]), fmt.Sprintf("up to raft index %d", last))
	want, facts := c.database(last)
	got, err := n.Rebuilt.Facts(t.Context())
	require.NoError(t, err)
	if got.RaftIndex != last || got.Revision != facts.Revision || n.Rebuilt.Base.ID != c.ids[2] {
		t.Errorf("%+v from %s, want %+v", got, n.Rebuilt.Base.ID, facts)
	}
	h, err := want.HashKV(t.Context(), 0)
	if err != nil || h.Hash != n.Rebuilt.Recipe.HashKV.Hash {
		t.Errorf("HashKV %+v, want %+v (%v)", n.Rebuilt.Recipe.HashKV, h, err)
	}
	var phases []string
	for _, p := range n.Check.Phases {
		phases = append(phases, p.Name)
	}
	if got := strings.Join(phases, ","); got != "base,replay,prove" {
		t.Errorf("phases %s", got)
	}
	require.NoError(t, n.Rebuilt.Close())
	c.empty()
}

// Nothing behind the newest backup is nothing to check; damage there and an entry
// that cannot be applied are findings.
func TestNewestFaults(t *testing.T) {
	healthy := newChain(t)
	entries := healthy.entries
	after := uint64(len(entries)) // the one entry behind the newest backup
	t.Run("nothing after", func(t *testing.T) {
		c := healthy.clone(t)
		c.archive(entries[:healthy.indexes[2]], 4)
		if n := c.checkNewest(); n.LogAfter {
			t.Errorf("%+v", n)
		}
	})
	t.Run("no backup", func(t *testing.T) {
		c := healthy.clone(t)
		catalog := c.catalog()
		catalog.Manifests = nil
		n, err := CheckNewest(t.Context(), c.repo, catalog, c.id, c.o)
		if err != nil || n.LogAfter || n.Rebuilt != nil {
			t.Errorf("%+v, %v", n, err)
		}
	})
	t.Run("a damaged segment", func(t *testing.T) {
		c := healthy.clone(t)
		c.archive(entries, int(healthy.indexes[2])) // the second one has what is behind
		c.flip(repository.SegmentName{Timeline: c.id, First: after}.String())
		expect(t, c.checkNewest().Check, report.KindSegment, "", "")
	})
	t.Run("an entry that cannot be applied", func(t *testing.T) {
		c := healthy.clone(t)
		c.archive(append(entries[:after:after], raftlog.Entry{Index: after + 1, Term: 2, Type: raftpb.EntryNormal, Data: []byte("no request")}), 4)
		expect(t, c.checkNewest().Check, report.KindApply, fmt.Sprintf("index %d", after+1), "cannot be applied")
	})
	t.Run("a damaged backup", func(t *testing.T) {
		c := healthy.clone(t)
		c.flip(c.manifest(healthy.ids[2]).Object.Name)
		expect(t, c.checkNewest().Check, report.KindObject, "", "")
	})
	t.Run("cancelled", func(t *testing.T) {
		c := healthy.clone(t)
		ctx, cancel := context.WithCancel(t.Context())
		c.o.Progress = func(string, int64, int64) { cancel() }
		n, err := CheckNewest(ctx, c.repo, c.catalog(), c.id, c.o)
		if !errors.Is(err, context.Canceled) || n.Rebuilt != nil {
			t.Errorf("%+v, %v", n, err)
		}
		c.empty()
	})
}

// Copies that the caller has unpacked are read in the place of the repository's
// objects, with their own sum: of the backup itself, of what it is proved from, and
// of the newest one.
func TestUnpackedCopies(t *testing.T) {
	healthy := newChain(t)
	c := healthy.clone(t)
	c.o = c.with(healthy.ids[1:]...)
	for _, id := range healthy.ids[1:] {
		c.flip(c.manifest(id).Object.Name) // it would be found
	}
	expectPassed(t, c.check(healthy.ids[2]), "with what backup "+healthy.ids[1])
	n := c.checkNewest()
	expectPassed(t, n.Check)
	require.NoError(t, n.Rebuilt.Close())
	c.empty()
}
