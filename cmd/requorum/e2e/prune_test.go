package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/store/storetest"
)

// TestPruneWindow is retention from the outside, while an archiver goes on: within
// the promised window any time can be restored after pruning, and is what it was;
// before it a time is refused and the nearest point is named; a pinned backup from
// before it is there; and the repository is whole.
func TestPruneWindow(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	client := c.Client(t)
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	round := 0
	put := func(times int) {
		round++
		for range times {
			_, err := client.Put(t.Context(), "/key", fmt.Sprint(round))
			require.NoError(t, err)
			time.Sleep(250 * time.Millisecond)
		}
	}
	// write puts a key four times a second, and says what it was at a time in the middle.
	// It stays the same for a while, since an archiver sees an entry a moment later.
	write := func(during time.Duration) (at time.Time, value string) {
		half, end := time.Now().Add(during/2-time.Second), time.Now().Add(during)
		for time.Now().Before(half) {
			put(1)
		}
		put(4)
		at = time.Now()
		round-- // the same
		put(4)
		value = fmt.Sprint(round)
		for time.Now().Before(end) {
			put(1)
		}
		return at, value
	}
	write(time.Second)
	a := u.archive(t, c, 0, repo)
	u.awaitArchived(t, repo, 1)
	before, _ := write(4 * time.Second)
	old := u.backup(t, c.Endpoints(), repo)
	write(2 * time.Second)
	base := u.backup(t, c.Endpoints(), repo)
	within, value := write(9 * time.Second)
	u.awaitArchived(t, repo, settled(t, c, 0))
	u.Must(t, exitOK, "restore", "--at", before.Format(time.RFC3339Nano), "--at-nearest", "--repo", repo, "--to-snapshot", u.Path("before.db"))
	u.Must(t, exitOK, "pin", old.ID, "--repo", repo)

	keep := []string{"prune", "--repo", repo, "--keep-any-point", "7s", "--keep-last", "1", "--grace", "0s"}
	u.Must(t, exitOK, append(keep, "--dry-run")...)
	pruned := decode[struct{ Result retention.Result }](t, u.Must(t, exitOK, append(keep, "--output", "json")...)).Result
	if pruned.Backups == 0 || pruned.Segments == 0 {
		t.Errorf("%+v", pruned)
	}
	list := u.list(t, repo)
	if len(list.Backups) != 2 || list.Backups[0].ID != old.ID || list.Backups[0].Pinned == nil || list.Backups[1].ID != base.ID {
		t.Errorf("left are %+v", list.Backups)
	}
	refused := u.Must(t, exitNothing, "restore", "--at", before.Format(time.RFC3339Nano), "--repo", repo, "--to-snapshot", u.Path("no.db"))
	if !strings.Contains(refused.Stderr, "nearest recoverable") && !strings.Contains(refused.Stderr, "first observation") {
		t.Errorf("no nearest point is named: %s", refused.Stderr)
	}
	u.Must(t, exitOK, "restore", old.ID, "--repo", repo, "--to-snapshot", u.Path("pinned.db"))
	u.Must(t, exitOK, "verify", "all", "--level", "structure", "--repo", repo)
	expectPoint(t, u, repo, "3.6", []string{"--at", within.Format(time.RFC3339Nano), "--at-nearest"}, value)

	// The archiver goes on over what was pruned, without a gap.
	write(time.Second)
	last := settled(t, c, 0)
	if reached := u.awaitArchived(t, repo, last); reached.FirstBackup != base.ID {
		t.Errorf("the range that goes on is %+v", reached)
	}
	a.stop(t)
	if left, err := filepath.Glob(u.Path("repo", "*", "gaps", "*")); err != nil || len(left) > 0 {
		t.Errorf("gaps: %v, %v", left, err)
	}
}
