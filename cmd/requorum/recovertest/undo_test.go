package recovertest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore/recovery"
)

// TestUndo: what a recovery did is taken back, and the old members serve what they
// had; promise 3 of the design. Where the new cluster has taken writes the
// cluster's name is asked for. Killed in between, the same command goes on, and no
// member that could start meets a directory without a log. After it the cluster
// can be recovered again.
func TestUndo(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Version: "3.6"})
	client := s.Client(t, s.Members()...)
	before, err := client.MemberList(t.Context())
	require.NoError(t, err)
	l := LightLoad(t, "/load/", Writes(100), s.Strike(t), client)
	end := s.Watch(t, s.Members()...)
	r := s.recover(t, exitOK, s.Hosts())
	if uint64(r.NewClusterID) == before.Header.ClusterId {
		t.Fatal("the new cluster has the old one's ID")
	}
	_, err = s.Client(t, s.Host(0)).Put(t.Context(), "/new", "x")
	require.NoError(t, err)

	undo := []string{"recover", "--config", s.ClusterFile(t, s.Hosts()...), "--output", "json", "--undo", "--yes"}
	s.Must(t, exitUsage, undo...)
	if after, err := s.Client(t, s.Host(0)).MemberList(t.Context()); err != nil || after.Header.ClusterId != uint64(r.NewClusterID) {
		t.Fatalf("the new cluster's writes were not given up, and it does not serve: %v", err)
	}
	undo = append(undo, "--accept-loss", s.Cluster)
	kills := 0
	for line := 3; ; line += short(6, 1) {
		lines := s.Steps(t)
		run := s.Start(t, undo...)
		if s.KillAtStep(t, run, lines+line) {
			kills++
			if s.LastDecision(t).Closed == "" {
				continue
			}
			// It had done all, and only its report was not printed.
			if e := s.Run(t, undo...); e.Code != exitFailed || !strings.Contains(e.Stderr, "nothing to undo") {
				t.Errorf("run again after the end: %s", e)
			}
			break
		}
		e := run.Wait(t)
		var u recovery.UndoReport
		if e.Decode(t, &u); e.Code != exitOK || len(u.Hosts) != 3 {
			t.Fatalf("undone: %s", e)
		}
		break
	}
	if kills < 2 {
		t.Errorf("the undo was killed %d times, want 2", kills)
	}
	end()
	s.WaitReady(t, s.Members()...)
	s.nothingMissing(t, "/load/", l, s.Members()...)
	old := s.Client(t, s.Host(0))
	after, err := old.MemberList(t.Context())
	if err != nil || after.Header.ClusterId != before.Header.ClusterId {
		t.Errorf("the old cluster does not serve: %v, %v", after, err)
	}
	if got, err := old.Get(t.Context(), "/new", clientv3.WithCountOnly()); err != nil || got.Count != 0 {
		t.Errorf("a write of the new cluster is in the old one: %v, %v", got, err)
	}

	s.KillAll(t)
	s.recover(t, exitOK, s.Hosts())
	s.nothingMissing(t, "/load/", l, s.Members()...)
	figure(t, "undos killed", kills)
}
