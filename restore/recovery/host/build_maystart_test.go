package host

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
)

// testMayStartPutBack: old data that somebody puts back by hand, where it had been
// superseded, is not started; put back by an undo it is.
func testMayStartPutBack(t *testing.T, f *faults) {
	h := f.copied(t, 0)
	h.setAside(run1)
	plan := f.built(t)
	_, err := h.rebuild(plan, f.peer)
	require.NoError(t, err)
	dir := h.cfg.Member.DataDir
	state, err := h.operator(run1).Member(t.Context())
	require.NoError(t, err)
	// By hand: what is set aside is copied back.
	require.NoError(t, os.Rename(filepath.Join(dir, "member"), filepath.Join(dir, "elsewhere")))
	copyFolder(t, state.Aside[0].Folder, filepath.Join(dir, "member"))
	_, err = h.operator(run1).Start(t.Context(), nil)
	if codeOf(err) != Unstartable || !strings.Contains(err.Error(), plan.Old.String()+", which was superseded by cluster "+plan.New.String()) {
		t.Errorf("%v", err)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "member")))
	require.NoError(t, os.Rename(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "member")))
	_, err = h.operator(run1).Undo(t.Context())
	require.NoError(t, err)
	h.cfg.Member.Command.Start = []string{"/bin/false"}
	if _, err = h.operator(run1).Start(t.Context(), nil); codeOf(err) != Failed || !strings.Contains(err.Error(), "false: exit status 1") {
		t.Errorf("after the undo: %v", err)
	}
	if by := takenBack(t, h, plan.Old); len(by) != 1 || by[0] != plan.New {
		t.Errorf("taken back: %v", by)
	}
}

// takenBack asks the state file.
func takenBack(t *testing.T, h *testHost, cluster snapshot.ID) []snapshot.ID {
	t.Helper()
	s, err := readState(h.cfg.StateDir)
	require.NoError(t, err)
	return s.TakenBack(cluster)
}

// TestMayStartRepository: a cluster all of whose timelines have ended is refused,
// with the timeline that took its place; where one lives, or where the undo on this
// host took the newer one back, it is not. A repository that cannot be asked is a
// warning.
func TestMayStartRepository(t *testing.T) {
	folder := t.TempDir()
	place, err := disk.New(folder)
	require.NoError(t, err)
	defer place.Close()
	repo, err := repository.Init(t.Context(), place, time.Now())
	require.NoError(t, err)
	old, newer := repository.TimelineID{ClusterID: 0x5bd6, N: 1}, repository.TimelineID{ClusterID: 0x7ac0, N: 1}
	open := func(t *testing.T, id repository.TimelineID) {
		t.Helper()
		require.NoError(t, repo.OpenTimeline(t.Context(), repository.Timeline{ID: id, Created: time.Now(), Reason: "test"}))
	}
	open(t, old)
	cfg := quietHost(t)
	logOf(t, cfg, old.ClusterID)
	ask := func(takenBack ...snapshot.ID) ([]string, error) {
		state := &stateFile{}
		for _, by := range takenBack {
			state.Undone = append(state.Undone, Undone{Old: snapshot.ID(old.ClusterID), New: by})
		}
		ended, warnings := ReadEnded(t.Context(), []string{folder}, signing.Keys{})
		return warnings, (&host{Config: cfg, State: state}).mayStart(ended)
	}
	if warnings, err := ask(); err != nil || warnings != nil {
		t.Errorf("a timeline that lives: %v %v", warnings, err)
	}
	require.NoError(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: old, By: newer, Reason: "recovered", Created: time.Now()}))
	_, err = ask()
	require.ErrorContains(t, err, old.String()+" was superseded by "+newer.String(), "superseded")
	_, err = ask(snapshot.ID(newer.ClusterID))
	require.NoError(t, err, "taken back here")
	open(t, repository.TimelineID{ClusterID: old.ClusterID, N: 2})
	_, err = ask()
	require.NoError(t, err, "another timeline of the cluster lives")

	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer l.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	away := []string{filepath.Join(t.TempDir(), "none"), "s3://bucket/prefix?region=x&endpoint=http://" + l.Addr().String()}
	began := time.Now()
	ended, warnings := readEnded(t.Context(), away, signing.Keys{}, 300*time.Millisecond)
	if len(ended) > 0 || len(warnings) != 2 || !strings.Contains(warnings[0]+warnings[1], "repositories[0]") {
		t.Errorf("away: %q %v", warnings, ended)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
