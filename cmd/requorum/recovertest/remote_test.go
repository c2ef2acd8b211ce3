package recovertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// TestBucketAndSurvivor recovers from an S3 bucket and one survivor's log, where
// neither is enough: the log begins after entries that only the bucket has, since
// the member was fed by a leader's snapshot, its database is gone, and it ends after
// the archive does. Every host, two of them set up anew, brings the rest over from
// the bucket. Afterwards what is restored from the bucket is the new cluster's
// (promise 6 of the design), and points from before the recovery are found, and
// named, in the timeline that it goes on from.
func TestBucketAndSurvivor(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Version: "3.7", Repository: OnS3, EtcdArgs: []string{"--snapshot-count=50", "--snapshot-catchup-entries=10"}})
	m1, lost := s.Host(0), s.Members()[1:]
	first := LightLoad(t, "/first/", Writes(300), func() {}, s.Client(t, lost...))
	s.waitStored(t, first)
	// The drill, while all is well: the members are to be stopped, and none is to be
	// declared dead.
	if p := s.survey(t, exitFailed, s.Hosts()); !p.Plan.Fence.Closes || p.Plan.Fence.Enough || len(p.Plan.Fence.Stopping) != 3 || strings.Contains(p.Plan.Fence.Why, "declare-dead") {
		t.Errorf("the fence of a dry run: %+v", p.Plan.Fence)
	}
	at := s.timeAfter(t, lost...)
	s.rejoin(t, m1, lost)
	joined := LightLoad(t, "/joined/", Writes(20), func() {}, s.Client(t, m1))
	s.waitStored(t, joined) // the bucket and the log of m1 have that in common
	for _, h := range s.Members() {
		h.KillAgent()
	}
	second := LightLoad(t, "/second/", Writes(50), s.Strike(t), s.Client(t, s.Members()...))
	second = within(second, m1.log(t))
	s.Lose(t, lost...)
	require.NoError(t, os.Remove(filepath.Join(m1.DataDir, "member", "snap", "db")))
	old := s.Archived(t)
	for _, h := range lost { // set up again, with nothing on their disks
		h.LinkUp(t)
	}
	given := []string{"--declare-dead", "m2,m3", "--accept-loss", s.Cluster}
	lost[1].reachable(t, "AWS_SECRET_ACCESS_KEY=another") // a host needs no repository
	r := s.recover(t, exitUnproven, s.Hosts(), given...)
	for _, h := range r.Hosts {
		if !broughtFrom(h, "the coordinator") {
			t.Errorf("%s brought over: %+v", h.Member, h.Brought)
		}
	}
	s.nothingMissing(t, "/first/", first, s.Members()...)
	s.nothingMissing(t, "/joined/", joined, s.Members()...)
	s.nothingMissing(t, "/second/", second, s.Members()...)

	for _, h := range s.Members() {
		h.StartAgent(t)
	}
	c := s.Client(t, s.Members()...)
	_, err := c.Delete(t.Context(), "/first/", clientv3.WithPrefix())
	require.NoError(t, err)
	third := LightLoad(t, "/third/", Writes(50), func() {}, c)
	s.waitStored(t, third)
	s.Must(t, exitOK, "verify", "latest", "--level", "structure", "--repo", s.Repository)
	c = s.restored(t)
	wantKeys(t, c, "the new timeline", "/first/", 0)
	for prefix, l := range map[string]*Load{"/second/": second, "/third/": third} {
		if missing := l.Missing(t, prefix, c); len(missing) > 0 {
			t.Errorf("restored from the new timeline, it lacks %v", missing)
		}
	}

	parent := "--timeline " + old.Timeline.String()
	for _, point := range []string{at, fmt.Sprint("--revision ", old.LastRevision), "--before " + joined.inOrder()[7]} {
		e := s.Must(t, exitNothing, append([]string{"restore", "--repo", s.Repository, "--to-snapshot", filepath.Join(s.Dir, "none.db")}, strings.Fields(point)...)...)
		if !strings.Contains(e.Stderr, parent) {
			t.Errorf("which timeline has that point is not said: %s", e)
		}
	}
	c = s.restored(t, strings.Fields(parent+" "+at)...)
	if missing := first.Missing(t, "/first/", c); len(missing) > 0 {
		t.Errorf("restored from the old timeline, it lacks %v", missing)
	}
	wantKeys(t, c, "the old timeline", "/third/", 0)
}

// timeAfter is a time for restore, of which the repository knows that all that is applied
// now came before it. Of entries that came at once the last may have no observation of
// their own: then that of a later one counts.
func (s *Site) timeAfter(t *testing.T, hosts ...*Host) (at string) {
	t.Helper()
	index, _ := s.applied(t)
	storetest.Eventually(t, fmt.Sprintf("it is known when index %d came", index), func() error {
		at = "--at " + time.Now().UTC().Format(time.RFC3339Nano) + " --at-nearest"
		args := []string{"restore", "--repo", s.Repository, "--to-snapshot", filepath.Join(s.Dir, "none.db"), "--dry-run", "--output", "json"}
		e := s.Must(t, exitOK, append(args, strings.Fields(at)...)...)
		var p struct{ Point struct{ Index uint64 } }
		if e.Decode(t, &p); p.Point.Index >= index {
			return nil
		}
		s.waitStored(t, LightLoad(t, "/later/", Writes(1), func() {}, s.Client(t, hosts...)))
		return errors.New(e.String())
	})
	return at
}

// rejoin replaces a member by one of the same name that the others feed with a
// snapshot: what they compacted before is not in its log.
func (s *Site) rejoin(t *testing.T, h *Host, others []*Host) {
	t.Helper()
	h.KillEtcd(t)
	c := s.Client(t, others...)
	members, err := c.MemberList(t.Context())
	require.NoError(t, err)
	for _, m := range members.Members {
		if m.Name == h.Name {
			storetest.Reconfigure(t, func(ctx context.Context) error { _, err := c.MemberRemove(ctx, m.ID); return err }, rpctypes.ErrMemberNotFound)
		}
	}
	require.NoError(t, os.RemoveAll(h.DataDir))
	storetest.Reconfigure(t, func(ctx context.Context) error { _, err := c.MemberAdd(ctx, []string{h.PeerURL}); return err }, rpctypes.ErrPeerURLExist)
	h.StartEtcd(t, "--initial-cluster-state", "existing")
	s.WaitReady(t, h)
}

// waitStored waits until the repository has all that was acknowledged, in a timeline
// of the cluster that runs: a recovery begins another one, whose raft indexes are lower.
func (s *Site) waitStored(t *testing.T, l *Load) {
	t.Helper()
	want := int64(0)
	for _, a := range l.Acks() {
		want = max(want, a.Revision)
	}
	// The archive knows of a revision only where a member reported it in time; the index
	// that a member has applied by now is behind all that was acknowledged.
	applied, cluster := s.applied(t)
	storetest.Eventually(t, fmt.Sprintf("the repository holds revision %d or raft index %d of cluster %016x", want, applied, cluster), func() error {
		all := s.ranges(t)
		if slices.ContainsFunc(all, func(r walreplay.Range) bool {
			return !r.Gap && r.Timeline.ClusterID == cluster && (r.LastRevision >= want || r.LastIndex >= applied)
		}) {
			return nil
		}
		return fmt.Errorf("it holds %+v", all)
	})
}

// applied is what the members have applied that are reached, and their cluster.
func (s *Site) applied(t *testing.T) (index, cluster uint64) {
	t.Helper()
	storetest.Eventually(t, "a member says what it has applied", func() error {
		err := errors.New("none does")
		for _, h := range s.Hosts() {
			c := s.Client(t, h)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if status, e := c.Status(ctx, c.Endpoints()[0]); e == nil {
				index, cluster, err = max(index, status.RaftAppliedIndex), status.Header.ClusterId, nil
			}
			cancel()
		}
		return err
	})
	return index, cluster
}

// broughtFrom reports whether a host rebuilt its member of something from there.
func broughtFrom(h recovery.HostReport, from string) bool {
	for _, b := range h.Brought {
		if b.From == from {
			return true
		}
	}
	return false
}

// restored is a client of a member that is restored from the repository.
func (s *Site) restored(t *testing.T, args ...string) *clientv3.Client {
	t.Helper()
	into, dirs, initialCluster := into(t, "r1")
	s.Must(t, exitOK, append(append([]string{"restore", "--repo", s.Repository}, into...), args...)...)
	return storetest.StartFromDataDirs(t, s.options.Version, dirs, initialCluster).Client(t)
}

func wantKeys(t *testing.T, c *clientv3.Client, where, prefix string, n int64) {
	t.Helper()
	got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	if got.Count != n {
		t.Errorf("%s has %d keys %s, want %d", where, got.Count, prefix, n)
	}
}
