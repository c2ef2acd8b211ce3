package recovertest

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/sinks/signing"
)

// TestPoint5OldMembersComeBack is point 5 of what recover must show, and promise 6
// of the design. Recovery does not begin while a majority of the old voters is
// neither stopped nor declared dead. After it a majority of the old members comes
// back, on hosts that had no power: `requorum host` refuses to start them
// and name the timeline that superseded theirs, and where they are started all the
// same they don't join.
func TestPoint5OldMembersComeBack(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Version: "3.7", Repository: OnDisk})
	m1, m2, m3 := s.Host(0), s.Host(1), s.Host(2)
	l := LightLoad(t, "/load/", During(3*time.Second), s.Strike(t), s.Client(t, s.Members()...), s.Client(t, s.Members()...))
	l = within(l, m1.log(t)) // the last acknowledgements may have been given without it
	old := s.Archived(t).Timeline
	m2.Down(t)
	m3.Down(t)

	// Neither of the two is stopped, as far as anybody can know.
	for _, hosts := range [][]*Host{s.Members(), {m1}} {
		e := s.Run(t, s.recovering(t, hosts, "--members", "m1", "--accept-loss", s.Cluster)...)
		aside, err := filepath.Glob(filepath.Join(m1.DataDir, "member.*"))
		require.NoError(t, err)
		if e.Code != exitUsage || len(s.Decisions(t)) > 0 || len(aside) > 0 {
			t.Fatalf("a majority could come back, and recovery began: %s", e)
		}
		if !strings.Contains(e.Stderr, "declare-dead") {
			t.Errorf("what to do is not said: %s", e)
		}
		s.survey(t, exitUsage, hosts, "--members", "m1")
	}
	r := s.recover(t, exitUnproven, s.Members(), "--members", "m1", "--declare-dead", "m2,m3", "--accept-loss", s.Cluster)
	timeline := opened(t, r)
	if timeline == "" || timeline == old.String() {
		t.Fatalf("the new timeline is %q, the old one is %s", timeline, old)
	}
	s.WaitReady(t, m1)
	s.nothingMissing(t, "/load/", l, m1)

	ended, warnings := host.ReadEnded(t.Context(), []string{s.Repository}, signing.Keys{})
	require.Empty(t, warnings)
	for _, h := range []*Host{m2, m3} {
		h.LinkUp(t)
		_, err := h.ControlClient(t, "come-back-1").Start(t.Context(), ended)
		var refused *host.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Refusal.Error, timeline) || len(h.Etcd(t)) > 0 {
			t.Errorf("%s was not refused in the name of timeline %s: %v", h.Name, timeline, err)
		}
	}
	// One alone, and then a majority, as units that are enabled would.
	for _, h := range []*Host{m2, m3} {
		h.StartEtcd(t)
		time.Sleep(2 * time.Second) // for what should not happen
		s.apart(t, r, m1, l)
	}
	s.WaitReady(t, m2, m3)
	members, err := s.Client(t, m2).MemberList(t.Context())
	require.NoError(t, err)
	if id := members.Header.ClusterId; id != uint64(r.OldClusterID) {
		t.Errorf("the old members are of cluster %x, want %s", id, r.OldClusterID)
	}
	s.apart(t, r, m1, l)
}

// within are the acknowledged writes that a log holds.
func within(l *Load, log []byte) *Load {
	held := &Load{acks: map[string]Ack{}}
	for key, a := range l.Acks() {
		if bytes.Contains(log, []byte(key)) {
			held.acks[key] = a
		}
	}
	return held
}

// opened is the timeline that a recovery opened in the only repository.
func opened(t *testing.T, r recovery.Report) string {
	t.Helper()
	for _, d := range r.Lineage {
		return d.Timeline.String()
	}
	return ""
}

// apart wants the new cluster as it was made: of one member, and without anything
// of the old ones.
func (s *Site) apart(t *testing.T, r recovery.Report, h *Host, l *Load) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := s.Client(t, h)
	_, err := c.Put(ctx, "/after", time.Now().String())
	require.NoError(t, err, "the new cluster does not take a write")
	members, err := c.MemberList(ctx, clientv3.WithSerializable())
	require.NoError(t, err)
	if len(members.Members) != 1 || members.Members[0].Name != h.Name || members.Header.ClusterId != uint64(r.NewClusterID) {
		t.Errorf("the new cluster has members %v, cluster ID %x; want %s alone, %s", members.Members, members.Header.ClusterId, h.Name, r.NewClusterID)
	}
	s.nothingMissing(t, "/load/", l, h)
}
