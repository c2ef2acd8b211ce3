package restore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// TestParentsThatAreMissing: they are made, belong to the owner, and go again
// when the restore fails.
func TestParentsThatAreMissing(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	req := three(small(t), filepath.Join(dir, "a", "b"))
	req.WALDir = filepath.Join(dir, "w", "{name}", "wal")
	req.Owner = &Owner{4000, 4001}
	_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{step: func(name string) {
		if name == "publish the data directory of m3" {
			write(t, filepath.Join(dir, "a", "b", "m3", "x"), "x")
		}
	}})
	require.Error(t, err, "no error")
	if got := names(t, dir); got != "a" {
		t.Errorf("left %s", got)
	}
	if got := names(t, filepath.Join(dir, "a", "b")); got != "m3" {
		t.Errorf("left %s", got)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "a")))
	execute(t, req, ExecOptions{})
	for _, path := range []string{"a", "a/b", "a/b/m1", "w", "w/m2", "w/m2/wal"} {
		info, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		if o := ownerOf(info); *o != *req.Owner {
			t.Errorf("%s belongs to %v", path, o)
		}
	}
}

// TestCompletedPlanIsNotRepeated: the same plan again says what it finds.
func TestCompletedPlanIsNotRepeated(t *testing.T) {
	req := three(small(t), t.TempDir())
	p := plan(t, req)
	_, err := Execute(t.Context(), p, req.Image, ExecOptions{})
	require.NoError(t, err)
	_, err = Execute(t.Context(), p, req.Image, ExecOptions{})
	require.ErrorIs(t, err, ErrExists)
}

// TestEarlierRunIsCompleted: a run that was ended while blockers were removed
// is completed with its own token, even if more is known of the lineage by now,
// and not when its bump would be too small.
func TestEarlierRunIsCompleted(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"})
	for _, known := range []int64{0, 5_000, 3 * DefaultBump} {
		dir := t.TempDir()
		l := layout{}
		if killed, out := runChild(t, childJob{Image: image, Request: l.prepare(t, dir, image), KillAt: 8}); !killed {
			t.Fatal(out)
		}
		req := l.prepareAgain(dir)
		req.Image, req.HighestKnownRevision = open(t, image), known
		p := plan(t, req)
		ready, err := p.Check(t.Context(), ExecOptions{})
		if known > DefaultBump {
			require.ErrorIs(t, err, ErrExists, "known %d", known)
			continue
		}
		if err != nil || ready.Completes == nil || ready.Completes.ID == p.ID {
			t.Fatalf("known %d: %+v %v", known, ready, err)
		}
		res, err := Execute(t.Context(), p, fakeImage{Image: req.Image}, ExecOptions{})
		if err != nil || !res.CompletedEarlier || res.Plan.ClusterToken != ready.Completes.ClusterToken {
			t.Errorf("known %d: %+v %v", known, res, err)
		}
		for _, name := range []string{"m1", "m2", "m3"} {
			if c, why := l.judge(t, dir, name, p); c != complete {
				t.Errorf("%s is %s %s", name, c, why)
			}
		}
	}
}

// TestStrangerBesideAWALDirectory: a file that somebody puts into a member's own log
// folder, while its log lies elsewhere, stays, and so does the blocker, by which
// another run completes the restore: without the folder.
func TestStrangerBesideAWALDirectory(t *testing.T) {
	dir := t.TempDir()
	req := three(small(t), filepath.Join(dir, "data"))
	req.WALDir = filepath.Join(dir, "wal", "{name}")
	p := plan(t, req)
	own := filepath.Join(dir, "data", "m3", "member", "wal")
	stranger := filepath.Join(own, "x")
	_, err := Execute(t.Context(), p, req.Image, ExecOptions{step: func(name string) {
		if name == "unblock m3" {
			write(t, stranger, "x")
		}
	}})
	require.ErrorContains(t, err, own+" holds x")
	if b, err := readBlocker(own); err != nil || b == nil {
		t.Errorf("the blocker is gone: %v", err)
	}
	require.NoError(t, os.Remove(stranger))
	if r, err := Execute(t.Context(), p, req.Image, ExecOptions{}); err != nil || !r.CompletedEarlier {
		t.Errorf("run again: %+v, %v", r, err)
	}
	if there, err := exists(own); err != nil || there {
		t.Errorf("the empty log folder is left: %v", err)
	}
}

// TestStrangerWithTheBlockersName: a file of that name which no restore wrote
// is reported, not removed.
func TestStrangerWithTheBlockersName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m1", "member", "wal", blockerName)
	write(t, path, "something else")
	req := three(small(t), dir)
	req.SetAside = true
	_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{})
	require.Error(t, err, "no error")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Error("it is gone")
	}
}
