package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/segment"
)

// history is what was written, and when.
type history struct {
	second   int64     // the revision of the second value
	index    uint64    // of the raft log, after the second value
	between  time.Time // between the second and the third value
	compact  int64     // the revision that was compacted at the end
	observed storetest.Observation
}

// TestLogPoints is point 5 of what the log must show: restores to a time, a
// revision, an index, and just before a key was last changed, into three members
// that serve; each version with two of them, and with all in a soak. The history up to all of these points was compacted later: they are
// exact all the same. What is before the first full snapshot is refused, and the
// nearest point is named.
func TestLogPoints(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name  string
		args  func(h history) []string
		value string
	}{
		{"at", func(h history) []string { return []string{"--at", h.between.Format(time.RFC3339Nano)} }, "two"},
		{"revision", func(h history) []string { return []string{"--revision", fmt.Sprint(h.second)} }, "two"},
		{"index", func(h history) []string { return []string{"--index", fmt.Sprint(h.index)} }, "two"},
		{"before", func(history) []string { return []string{"--before", "/key"} }, "three"},
		{"before-prefix", func(history) []string { return []string{"--before-prefix", "/ke"} }, "three"},
		{"latest", func(history) []string { return []string{"--latest"} }, ""},
	}
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // much of it waits
			c := storetest.Start(t, storetest.Options{Version: version})
			u := newUser(t)
			repo := "file://" + u.Path("repo")
			h := writeHistory(t, u, c, repo)
			restores := 0
			for n, way := range ways {
				switch {
				case storetest.Soak():
				case testing.Short() && n%2 > 0: // one version, with every second of them
					continue
				case !testing.Short() && n%len(storetest.Versions()) != slices.Index(storetest.Versions(), version):
					continue
				}
				restores++
				t.Run(way.name, func(t *testing.T) {
					expectPoint(t, u, repo, version, way.args(h), way.value)
				})
			}
			figure(t, "restores into three members", restores)
			if version == "3.7" || storetest.Soak() {
				expectObserved(t, u.rebuild(t, "--repo", repo, "--revision", fmt.Sprint(h.observed.Revision)), "in the compacted past", h.observed)
				expectRefused(t, u, repo)
			}
		})
	}
}

// writeHistory writes a key three times and deletes it, archived from the
// second value on, and compacts it all.
func writeHistory(t *testing.T, u *user, c *storetest.Cluster, repo string) (h history) {
	t.Helper()
	client := c.Client(t)
	put := func(key, value string) int64 {
		resp, err := client.Put(t.Context(), key, value)
		require.NoError(t, err)
		return resp.Header.Revision
	}
	put("/before-the-archive", "x")
	put("/key", "one")
	a := u.archive(t, c, 0, repo)
	u.awaitArchived(t, repo, 1)
	h.second = put("/key", "two")
	h.index = applied(t, c, 0)
	// Observations are kept with the entries that they are of: a time is found
	// where something was written less than a second around it, and the archiver saw
	// it as soon.
	storetest.Eventually(t, "a time after the second value can be restored", func() error {
		for i := range 8 {
			time.Sleep(200 * time.Millisecond)
			if put("/other", "x"); i == 4 {
				h.between = time.Now()
			}
		}
		u.awaitArchived(t, repo, applied(t, c, 0))
		if e := u.Run(t, "restore", "--repo", repo, "--at", h.between.Format(time.RFC3339Nano), "--to-snapshot", u.Path("never.db"), "--dry-run"); e.Code != exitOK {
			return errors.New(e.String())
		}
		return nil
	})
	three := put("/key", "three")
	hash := hashAt(t, c, 0, three)
	h.observed = storetest.Observation{Revision: three, CompactedRevision: hash.CompactedRevision, Hash: hash.Hash}
	put("/other", "y")
	_, err := client.Delete(t.Context(), "/key")
	require.NoError(t, err)
	h.compact = put("/other", "z")
	_, err = client.Compact(t.Context(), h.compact, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	for range 3 { // marks stand 200 ms apart, and the last of these entries may get none
		time.Sleep(250 * time.Millisecond)
		put("/other", "after the compaction")
	}
	u.awaitArchived(t, repo, applied(t, c, 0))
	a.stop(t)
	c.Kill(0)
	return h
}

// expectPoint restores three members and starts them.
func expectPoint(t *testing.T, u *user, repo, version string, args []string, value string) {
	t.Helper()
	cluster := storetest.InitialCluster(t, names(3)...)
	full := append([]string{"restore", "--output", "json", "--repo", repo, "--initial-cluster", cluster, "--data-dir", dataDirs(t.TempDir())}, args...)
	r := decode[restoreReport](t, u.Must(t, exitOK, full...))
	restored := startRestored(t, version, r)
	for i := range restored.Size() {
		resp, err := restored.Client(t, i).Get(t.Context(), "/key")
		require.NoError(t, err)
		got := ""
		if len(resp.Kvs) > 0 {
			got = string(resp.Kvs[0].Value)
		}
		if got != value {
			t.Errorf("%s of %s: /key is %q, want %q", restored.Member(i).Name, strings.Join(args, " "), got, value)
		}
	}
	_, err := restored.Client(t).Put(t.Context(), "/key", "goes on")
	require.NoError(t, err)
	expectEqual(t, t.Context(), restored)
}

// expectRefused wants what is not covered to be refused, with what is.
func expectRefused(t *testing.T, u *user, repo string) {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--revision", "1"},
		{"--index", "1000000"},
		{"--revision", "1000000"},
		{"--at", "2020-01-02T15:04:05Z"},
		{"--before", "/never-written"},
	} {
		e := u.Must(t, exitNothing, append([]string{"restore", "--repo", repo, "--to-snapshot", filepath.Join(dir, "none.db")}, args...)...)
		if args[0] != "--before" && !strings.Contains(e.Stderr, "nearest recoverable point") {
			t.Errorf("the nearest point is not named: %s", e)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
}

// TestLogFlippedBytes is point 6 of what the log must show: a flipped bit
// anywhere in any object of the archived log is found, by whoever reads it and
// by a restore that needs it. Short: a sample of the bytes of each object; long:
// each byte.
func TestLogFlippedBytes(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	u := newUser(t)
	dir := u.Path("repo")
	a := u.archive(t, c, 0, "file://"+dir, "jobs: {merge: {run: off}}")
	base := u.awaitArchived(t, "file://"+dir, 1)
	for range 3 {
		putSome(t, c, "/some/", 20)
		u.awaitArchived(t, "file://"+dir, applied(t, c, 0))
	}
	a.stop(t)
	c.Kill(0)
	restore := []string{"restore", "--repo", "file://" + dir, "--latest", "--to-snapshot"}
	u.Must(t, exitOK, append(restore, u.Path("whole.db"))...)

	log := openLog(t, dir, base.Timeline)
	if n := len(log.Headers()); n < 3 {
		t.Fatalf("%d segments: want several", n)
	}
	repo := openRepo(t, dir)
	out, flips := u.Path("never.db"), 0
	for _, h := range log.Headers() {
		path := filepath.Join(dir, filepath.FromSlash(h.Name()))
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o600))
		for at := range whole {
			if !storetest.Soak() && at%(len(whole)/200+1) != 0 {
				continue
			}
			flips++
			flipped := slices.Clone(whole)
			flipped[at] ^= 1 << (at % 8)
			require.NoError(t, os.WriteFile(path, flipped, 0o600))
			_, _, err = segment.Read(t.Context(), repo, h.Name())
			require.Error(t, err, "byte %d of %d of %s is flipped, and it is read", at, len(whole), path)
			if h.LastIndex <= base.FirstIndex || flips%short(20, 7) != 0 {
				continue // a restore does not read it, or there were enough
			}
			e := run(t, append(restore, out)...)
			if _, err := os.Stat(out); err == nil || e.Code != exitDamaged {
				t.Fatalf("byte %d of %d of %s is flipped, and the restore ended with %d, want %d: %s", at, len(whole), path, e.Code, exitDamaged, e)
			}
		}
		require.NoError(t, os.WriteFile(path, whole, 0o600))
	}
	u.Must(t, exitOK, append(restore, out)...)
	figure(t, "flips found", flips)
	figure(t, "segments", len(log.Headers()))
}
