package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// cutOff is a cluster of three, one of which is cut off and misses a write that
// the others acknowledged.
type cutOff struct {
	*storetest.Cluster
	isolated, follower, leader int
	missed                     storetest.Ack
}

func startCutOff(t *testing.T, version string) *cutOff {
	t.Helper()
	c := &cutOff{Cluster: storetest.Start(t, storetest.Options{Version: version, Members: 3}), isolated: 2}
	c.Fill(t, storetest.Load{Keys: 500, Leases: 2})
	c.Isolate(t, c.isolated)
	// The others may have to elect a leader first, which loses what is asked of
	// them meanwhile: the writer tries again.
	w := storetest.StartWriter(t, c.Client(t, 0, 1), "/missed/")
	w.WaitFor(t, 1)
	c.missed = w.Stop()[0]
	c.findLeader(t)
	return c
}

// findLeader looks which of the two leads now.
func (c *cutOff) findLeader(t *testing.T) {
	t.Helper()
	c.leader = c.Leader(t, 0, 1)
	c.follower = 1 - c.leader
}

// expectMissed wants the write that the isolated member missed to be in a
// backup.
func (c *cutOff) expectMissed(t *testing.T, u *user, repo string, m *snapshot.Manifest) {
	t.Helper()
	if m.Facts.Revision < c.missed.Revision || m.Facts.RaftIndex < m.Barrier.RaftIndex {
		t.Errorf("the backup ends at revision %d, raft index %d; acknowledged was revision %d, the barrier %d", m.Facts.Revision, m.Facts.RaftIndex, c.missed.Revision, m.Barrier.RaftIndex)
	}
	if id := c.id(t, c.isolated); m.Source.MemberID == id {
		t.Errorf("it was read from the isolated member %s", id)
	}
}

func (c *cutOff) id(t *testing.T, member int) snapshot.ID {
	t.Helper()
	status, err := c.Client(t, member).Status(t.Context(), c.Member(member).ClientURL)
	require.NoError(t, err)
	return snapshot.ID(status.Header.MemberId)
}

// expectNone wants a refused backup to leave nothing.
func expectNone(t *testing.T, u *user, repo string, e ended) {
	t.Helper()
	if r := u.list(t, repo); len(r.Backups)+len(r.Incomplete) != 0 {
		t.Errorf("listed after %s: %+v", e, r)
	}
	if left := slices.DeleteFunc(tree(t, strings.TrimPrefix(repo, "file://")), func(s string) bool { return !strings.Contains(s, "snapshot") }); len(left) != 0 {
		t.Errorf("left by %s: %v", e, left)
	}
}

// TestIsolatedMember is point 3 of what the main job must show: a member that
// is cut off from the quorum gives no backup. Alone it is refused, with the
// reason; beside others one of those is read. An address that answers for an
// up-to-date member and streams the snapshot of the one that is cut off, as a load
// balancer in front of both may, is found out by the stored bytes.
func TestIsolatedMember(t *testing.T) {
	t.Parallel()
	for _, version := range logVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // elections and timeouts take the time
			c := startCutOff(t, version)
			u := newUser(t)
			repo := "file://" + u.Path("repo")

			alone := backupArgs([]string{c.Member(c.isolated).ClientURL}, repo)
			e := u.Must(t, exitFailed, append(alone, "--command-timeout", "2s")...)
			if !strings.Contains(e.Stderr, "up to date") || !strings.Contains(e.Stderr, c.Member(c.isolated).ClientURL) {
				t.Errorf("the reason or the endpoint is not named: %s", e)
			}
			expectNone(t, u, repo, e)

			// It comes first in the list, which decides nothing.
			endpoints := []string{c.Member(c.isolated).ClientURL, c.Member(c.leader).ClientURL, c.Member(c.follower).ClientURL}
			c.expectMissed(t, u, repo, u.backup(t, endpoints, repo))

			// The leader and the isolated one: a follower would be taken first, but
			// this one is behind.
			c.expectMissed(t, u, repo, u.backup(t, endpoints[:2], repo))

			expectLiarFound(t, c, u)

			// Without a quorum nobody can know what was acknowledged.
			c.Kill(c.leader)
			before := len(u.list(t, repo).Backups)
			e = u.Must(t, exitFailed, append(backupArgs([]string{endpoints[0], endpoints[2]}, repo), "--command-timeout", "2s")...)
			if r := u.list(t, repo); len(r.Backups) != before || len(r.Incomplete) != 0 {
				t.Errorf("listed after %s: %+v", e, r)
			}
		})
	}
}

// expectLiarFound: it is refused where it is the only one; another member is read
// where there is one.
func expectLiarFound(t *testing.T, c *cutOff, u *user) {
	repo := "file://" + u.Path("repo-of-the-liar")
	c.findLeader(t) // a follower is read first
	liar := startSwitch(t, func(method string) string {
		if strings.HasSuffix(method, "/Snapshot") {
			return c.Member(c.isolated).ClientURL
		}
		return c.Member(c.follower).ClientURL
	})
	e := u.Must(t, exitFailed, backupArgs([]string{liar.url}, repo)...)
	if !strings.Contains(e.Stderr, snapshot.ErrStale.Error()) {
		t.Errorf("the reason is not named: %s", e)
	}
	if liar.count("/Snapshot") == 0 {
		t.Errorf("the snapshot was never asked for: %s", e)
	}
	expectNone(t, u, repo, e)

	before := liar.count("/Snapshot")
	e = u.Must(t, exitOK, backupArgs([]string{liar.url, c.Member(c.leader).ClientURL}, repo)...)
	r := decode[backupReport](t, e)
	c.expectMissed(t, u, repo, r.Backup)
	if liar.count("/Snapshot") == before || len(r.Skipped) != 1 || r.Skipped[0].Endpoint != liar.url {
		t.Errorf("the liar was not tried, or not named: %s", e)
	}
	if l := u.list(t, repo); len(l.Backups) != 1 || len(l.Incomplete) != 0 {
		t.Errorf("listed: %+v", l)
	}
}

// TestSwitchingEndpoint: an address that leads to another member from call to
// call is refused as such.
func TestSwitchingEndpoint(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	u := newUser(t)
	n := 0
	balancer := startSwitch(t, func(string) string {
		n++
		return c.Member(n % 3).ClientURL
	})
	e := u.Must(t, exitFailed, backupArgs([]string{balancer.url}, u.Path("repo"))...)
	if !strings.Contains(e.Stderr, "load balancer") {
		t.Errorf("the reason is not named: %s", e)
	}
	expectNone(t, u, u.Path("repo"), e)
}
