package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// target is a cluster to restore into.
type target struct {
	version string
	members int
	place   string // "disk" or "s3"
}

// targets are, for each source version, what is restored into. Without the
// soak each source has with each place, each target version with each size but two,
// and every size with both places; the long form has all.
func targets(source string) []target {
	if !storetest.Soak() {
		return map[string][]target{
			"3.5": {{"3.5", 1, "s3"}, {"3.6", 5, "disk"}, {"3.7", 1, "s3"}},
			"3.6": {{"3.6", 3, "s3"}, {"3.7", 5, "disk"}},
			"3.7": {{"3.7", 3, "s3"}, {"3.7", 1, "disk"}, {"3.7", 5, "s3"}},
		}[source]
	}
	var all []target
	for _, version := range storetest.Versions() {
		if version < source {
			continue
		}
		for _, members := range []int{1, 3, 5} {
			for _, place := range []string{"disk", "s3"} {
				all = append(all, target{version, members, place})
			}
		}
	}
	return all
}

// TestMatrix is point 2 of what the main job must show, and promises 5, 6 and
// 8: from every etcd that requorum knows, under writes and with authentication,
// one backup to disk and to S3, restorable by hand and by requorum, into every
// size of cluster, by the same and by newer servers.
func TestMatrix(t *testing.T) {
	t.Parallel()
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	versions := storetest.Versions()
	if testing.Short() {
		versions = []string{"3.6"} // into the same and a newer one, from S3 and from disk, of three and of five
	}
	for _, version := range versions {
		t.Run("from-"+version, func(t *testing.T) { matrixFrom(t, server, version) })
	}
}

func matrixFrom(t *testing.T, server *sinktest.S3Server, version string) {
	src := startSource(t, version)
	u := newUser(t, rootUser(), "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	repos := map[string]string{"disk": "file://" + u.Path("repo"), "s3": server.URL("backups", "etcd-"+version)}

	acks := src.writer.Acknowledged()
	made := map[string]*snapshot.Manifest{}
	for place, repo := range repos {
		made[place] = u.backup(t, src.Endpoints(), repo, "--label", "from="+version)
	}
	src.writer.WaitFor(t, len(acks)+20) // the writes went on all the time
	last := src.writer.Stop()
	ended := last[len(last)-1].Revision
	// Nothing was compacted since the backups, so the source still knows.
	want := map[string]snapshot.HashKV{}
	for place, m := range made {
		want[place] = hashAt(t, src.Cluster, 0, m.Facts.Revision)
	}
	for i := range src.Size() { // two cores carry one cluster better than two
		src.Kill(i)
	}

	stored := map[string]string{
		"disk": u.Path("repo", made["disk"].Object.Name),
		"s3":   filepath.Join(server.Dir, "backups", "etcd-"+version, made["s3"].Object.Name),
	}
	for _, place := range []string{"disk", "s3"} {
		t.Run("by-hand-from-"+place, func(t *testing.T) { expectByHand(t, version, stored[place], made[place]) })
	}
	for i, to := range targets(version) {
		t.Run(fmt.Sprintf("to-%s-with-%d-members-from-%s", to.version, to.members, to.place), func(t *testing.T) {
			if i == 0 || storetest.Soak() {
				t.Run("unbumped", func(t *testing.T) {
					expectUnbumped(t, u, repos[to.place], src, to.version, made[to.place], want[to.place])
				})
			}
			expectRestored(t, u, repos[to.place], src, to, acks, ended)
		})
	}
	t.Run("older-targets-are-refused", func(t *testing.T) { expectOlderRefused(t, u, repos["disk"], version) })
}

// expectByHand is promise 5: zstd and that version's own etcd tool, which checks
// the hash, and nothing of ours.
func expectByHand(t *testing.T, version, stored string, m *snapshot.Manifest) {
	plain := filepath.Join(t.TempDir(), "snapshot.db")
	unpack(t, stored, plain)
	dir := filepath.Join(t.TempDir(), "data")
	storetest.Etcdutl(t, version, "snapshot", "restore", plain, "--data-dir", dir)
	_, err := os.Stat(filepath.Join(dir, "member", "snap", "db"))
	require.NoError(t, err)
	// That the tool does compare the hash: a byte less, and it refuses.
	data, err := os.ReadFile(plain)
	require.NoError(t, err)
	if int64(len(data)) != m.Object.RawSize {
		t.Errorf("unpacked %d bytes, the manifest has %d", len(data), m.Object.RawSize)
	}
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(plain, data, 0o600))
	cmd := exec.Command(storetest.Binary(t, version, "etcdutl"), "snapshot", "restore", plain, "--data-dir", dir+"-2")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("the tool takes a snapshot with a flipped bit: it proves nothing\n%s", out)
	}
}

// expectUnbumped wants the restored file, before any bump, to be the source at
// the backup's revision, and a watch from then on to go on with the events.
func expectUnbumped(t *testing.T, u *user, repo string, src *source, version string, m *snapshot.Manifest, want snapshot.HashKV) {
	r := decode[restoreReport](t, u.Must(t, exitOK, "restore", "--output", "json", "--repo", repo, m.ID, "--bump-revision", "off",
		"--initial-cluster", storetest.InitialCluster(t, "m1"), "--data-dir", filepath.Join(t.TempDir(), "{name}")))
	c := startRestored(t, version, r)
	if got := hashAt(t, c, 0, m.Facts.Revision); got != want {
		t.Errorf("restored: %+v, the source at the backup's revision: %+v", got, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if w := firstWatch(t, ctx, c, src.first); w.Err() != nil || len(w.Events) == 0 || w.Events[0].Kv.ModRevision != src.first {
		t.Errorf("a watch from revision %d: %+v, %v; want its event", src.first, w, w.Err())
	}
}

// expectRestored restores and looks at the result as clients do. ended is the
// last revision that any client of the source saw.
func expectRestored(t *testing.T, u *user, repo string, src *source, to target, acks []storetest.Ack, ended int64) {
	r := decode[restoreReport](t, u.Must(t, exitOK, "restore", "--output", "json", "--repo", repo, "--target-version", to.version,
		"--initial-cluster", storetest.InitialCluster(t, names(to.members)...), "--data-dir", filepath.Join(t.TempDir(), "{name}")))
	if r.Restore.RevisionAfter <= ended || len(r.Restore.Members) != to.members {
		t.Errorf("%d members at revision %d; the source went on to %d", len(r.Restore.Members), r.Restore.RevisionAfter, ended)
	}
	c := startRestored(t, to.version, r)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(short(60, 300))*time.Second)
	defer cancel()
	client := c.Client(t)
	require.NoError(t, src.filled.Compare(ctx, client), "keys, leases, users, roles")
	expectWrites(t, ctx, client, acks)
	expectLeases(t, ctx, client, src.filled)
	expectCompacted(t, ctx, c, src.filled.Revision, ended, ended+5)
	expectSwap(t, ctx, client, src.filled, ended)
	expectRoles(t, ctx, c)
	expectEqual(t, ctx, c)
	list, err := client.MemberList(ctx)
	if err != nil || len(list.Members) != to.members || list.Header.ClusterId != uint64(r.Restore.Plan.ClusterID) ||
		r.Restore.Plan.ClusterID == snapshot.ID(0) || slices.ContainsFunc(r.Restore.Plan.Source.Facts.Members, func(m snapshot.Member) bool {
		return uint64(m.ID) == list.Members[0].ID
	}) {
		t.Errorf("members %v of cluster %x, %v; planned %s", list.Members, list.Header.ClusterId, err, r.Restore.Plan.ClusterID)
	}
}

// expectOlderRefused wants what an older server cannot serve to be refused, by
// requorum and, where it checks at all, by that server.
func expectOlderRefused(t *testing.T, u *user, repo, version string) {
	older := map[string]string{"3.5": "3.4", "3.6": "3.5", "3.7": "3.6"}[version]
	dir := t.TempDir()
	args := []string{"restore", "--output", "json", "--repo", repo, "--initial-cluster", storetest.InitialCluster(t, "m1"), "--data-dir", filepath.Join(dir, "{name}")}
	e := u.Must(t, exitFailed, append(args, "--target-version", older)...)
	if !strings.Contains(e.Stderr, restore.ErrTooOld.Error()) || len(tree(t, dir)) != 0 {
		t.Errorf("left %v: %s", tree(t, dir), e)
	}
	if version != "3.7" {
		return // 3.5 boots what is too new for it
	}
	r := decode[restoreReport](t, u.Must(t, exitOK, args...))
	one := startOnce(t, older, r.Restore.Members[0].Name, r.Restore.Members[0].DataDir, r.Restore.InitialCluster, "existing")
	defer one.Kill()
	if !one.endsWithin(20 * time.Second) {
		t.Errorf("etcd %s runs on a database of %s:\n%s", older, version, one.log())
	}
}
