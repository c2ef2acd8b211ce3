package recovery

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/requorum/requorum/store/storetest"
)

// Promises 2 and 4: all members end at the same moment; nothing that was
// acknowledged is lost, nothing is raised, and the plan said so beforehand. Then
// the old cluster is put back.
func TestRecoverAll(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			recoverAll(t, newSite(t, version, 3))
		})
	}
}

func recoverAll(t *testing.T, s *site) {
	t.Helper()
	want := s.fill(t, "a", 50)
	old := s.clusterID(t, s.hosts[0])
	s.killAll()
	p, err := Preflight(t.Context(), s.request(nil))
	if err != nil {
		t.Fatalf("%v\n%s", err, shown(p))
	}
	if !p.Plan.Proven || len(p.Blockers) > 0 || len(p.Members) != 3 || p.Quorum.Serves {
		t.Fatalf("%+v", p)
	}
	e := &heard{t: t}
	r, err := Run(t.Context(), s.request(e))
	require.NoError(t, err)
	s.check(t, want, s.hosts...)
	if now := s.clusterID(t, s.hosts[1]); now == old || now != uint64(r.NewClusterID) {
		t.Errorf("cluster %x, %s was reported", now, r.NewClusterID)
	}
	if !r.Proven || r.RevisionAfter != r.RevisionBefore || r.RTO <= 0 || len(e.questions) != 1 || e.questions[0].Type != "" {
		t.Errorf("%+v, %+v", r, e.questions)
	}
	// A second run finds a cluster that serves.
	var serves *QuorumError
	if _, err := Run(t.Context(), s.request(e)); !errors.As(err, &serves) || len(e.questions) != 1 {
		t.Errorf("again: %v", err)
	}
	// A member that was added since would not be stopped by an undo.
	c := s.client(t, s.hosts[0])
	const peer = "http://127.0.0.1:1"
	storetest.Reconfigure(t, func(ctx context.Context) error { _, err := c.MemberAddAsLearner(ctx, []string{peer}); return err }, rpctypes.ErrPeerURLExist)
	if _, err := Undo(t.Context(), s.request(e)); err == nil || !strings.Contains(err.Error(), "has grown since") || len(e.questions) != 1 {
		t.Errorf("undo of a cluster that has grown: %v", err)
	}
	list, err := c.MemberList(t.Context())
	require.NoError(t, err)
	for _, m := range list.Members {
		if slices.Equal(m.PeerURLs, []string{peer}) {
			storetest.Reconfigure(t, func(ctx context.Context) error { _, err := c.MemberRemove(ctx, m.ID); return err }, rpctypes.ErrMemberNotFound)
		}
	}
	u, err := Undo(t.Context(), s.request(e))
	require.NoError(t, err)
	s.waitReady(t, s.hosts...)
	s.check(t, want, s.hosts...)
	if now := s.clusterID(t, s.hosts[2]); now != old {
		t.Errorf("cluster %x after the undo, was %x", now, old)
	}
	for _, h := range u.Hosts {
		if !h.Started || h.PutBack == "" || len(h.Kept) == 0 {
			t.Errorf("%+v", h)
		}
	}
	if q := e.questions[1]; !strings.HasPrefix(q.Text, "Take run ") || q.Type != "" {
		t.Errorf("asked %+v", q)
	}
	_, err = Undo(t.Context(), s.request(e))
	require.ErrorIs(t, err, ErrNothingToUndo, "again")
}
