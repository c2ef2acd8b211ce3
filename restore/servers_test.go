package restore

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

	"github.com/requorum/requorum/store/storetest"
)

func memberNames(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("m%d", i+1))
	}
	return out
}

// TestPromise8AnyEtcdFromTheSourceOnStarts restores snapshots of each version
// into clusters of each size, starts them with real servers of the same and of
// newer versions, and looks at them as clients do.
func TestPromise8AnyEtcdFromTheSourceOnStarts(t *testing.T) {
	for i, c := range []struct {
		source, target string
		members        int
		learners       []string
		engine         string
	}{
		{"3.5", "3.5", 3, nil, EngineRequorum},
		{"3.5", "3.6", 1, nil, EngineRequorum},
		{"3.5", "3.7", 5, nil, EngineRequorum},
		{"3.6", "3.6", 4, []string{"m4"}, EngineRequorum},
		{"3.6", "3.7", 2, nil, EngineRequorum},
		{"3.7", "3.7", 3, nil, EngineRequorum},
		{"3.5", "3.5", 4, []string{"m2"}, EngineRequorum},
		{"3.7", "3.7", 4, []string{"m1"}, EngineRequorum},
		{"3.6", "3.6", 3, nil, EngineEtcdutl},
	} {
		if testing.Short() && i%3 != 1 {
			continue
		}
		t.Run(fmt.Sprintf("%s-to-%s-%d-%s-%s", c.source, c.target, c.members, strings.Join(c.learners, "+"), c.engine), func(t *testing.T) {
			t.Parallel()
			from := realImage(t, c.source)
			dir := t.TempDir()
			req := Request{
				Image:          open(t, from.path),
				InitialCluster: storetest.InitialCluster(t, memberNames(c.members)...),
				Learners:       c.learners,
				DataDir:        filepath.Join(dir, "{name}"),
				Engine:         c.engine,
				TargetVersion:  c.target,
			}
			res := execute(t, req, ExecOptions{})
			dirs := map[string]string{}
			for _, m := range res.Members {
				dirs[m.Name] = m.DataDir
			}
			cluster := storetest.Start(t, storetest.Options{
				Version: c.target, DataDirs: dirs, InitialCluster: res.InitialCluster, Auth: true,
				ExtraArgs: []string{"--initial-cluster-state=existing"},
			})
			lookAt(t, cluster, from, res)
		})
	}
}

func lookAt(t *testing.T, cluster *storetest.Cluster, from *served, res *Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var voters []int
	for i, m := range res.Members {
		if !m.Learner {
			voters = append(voters, i)
		}
	}
	client := cluster.Client(t, voters...)
	require.NoError(t, from.filled.Compare(ctx, client), "keys, leases, users")
	members, err := client.MemberList(ctx)
	require.NoError(t, err)
	if members.Header.ClusterId != uint64(res.Plan.ClusterID) || len(members.Members) != len(res.Members) {
		t.Errorf("cluster %x with %d members, the plan has %s with %d", members.Header.ClusterId, len(members.Members), res.Plan.ClusterID, len(res.Members))
	}
	for _, m := range members.Members {
		want := res.Plan.member(m.Name)
		if want == nil || uint64(want.ID) != m.ID || want.Learner != m.IsLearner || !slices.Equal(want.PeerURLs, m.PeerURLs) {
			t.Errorf("member %v is not as planned: %v", m, want)
		}
	}
	if got, err := client.Get(ctx, "x"); err != nil || got.Header.Revision < res.RevisionAfter {
		t.Errorf("revision %v %v, want at least %d", got, err, res.RevisionAfter)
	}
	// A client that remembers a revision from before hears of it. One member
	// answers: another may not know the client's token yet, and the client tries
	// reads again but not watches.
	one := cluster.Client(t, voters[0])
	for _, old := range []int64{from.filled.Revision, from.filled.Revision + 5} {
		if _, err := one.Get(ctx, "x", clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a read at revision %d: %v, want compacted", old, err)
		}
		w := <-one.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(old))
		if w.CompactRevision == 0 || !errors.Is(w.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a watch from revision %d: %+v %v, want compacted", old, w, w.Err())
		}
	}
	// Optimistic locking goes on.
	for key, state := range from.filled.Keys {
		swap := func(rev int64) bool {
			resp, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", rev)).Then(clientv3.OpPut(key, "swapped")).Commit()
			require.NoError(t, err)
			if resp.Header.Revision < res.RevisionAfter {
				t.Errorf("revision %d, want at least %d", resp.Header.Revision, res.RevisionAfter)
			}
			return resp.Succeeded
		}
		if !swap(state.Mod) || swap(state.Mod) {
			t.Errorf("%s: compare and swap on mod revision %d is wrong", key, state.Mod)
		}
		break
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil || len(alarms.Alarms) > 0 {
		t.Errorf("alarms: %v %v", alarms, err)
	}
	sameHash(ctx, t, cluster, voters)
}

// sameHash wants equal members.
func sameHash(ctx context.Context, t *testing.T, cluster *storetest.Cluster, voters []int) {
	t.Helper()
	client := cluster.Client(t, voters...)
	head, err := client.Get(ctx, "x")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, i := range voters {
		one := cluster.Client(t, i)
		if _, err := one.Get(ctx, "x"); err != nil { // waits until it has caught up
			t.Fatal(err)
		}
		h, err := one.HashKV(ctx, cluster.Member(i).ClientURL, head.Header.Revision)
		require.NoError(t, err)
		seen[fmt.Sprint(h.Hash, h.CompactRevision)] = true
	}
	if len(seen) != 1 {
		t.Errorf("members differ: hash and compacted revision %v", seen)
	}
}

// TestSeparateWALDirectoryStarts starts a member whose log lies elsewhere.
func TestSeparateWALDirectoryStarts(t *testing.T) {
	t.Parallel()
	versions := []string{"3.5", "3.6", "3.7"}
	if testing.Short() {
		versions = versions[2:]
	}
	for _, version := range versions {
		dir := t.TempDir()
		from := realImage(t, "3.5")
		req := Request{
			Image: open(t, from.path), InitialCluster: storetest.InitialCluster(t, "m1"), DataDir: filepath.Join(dir, "data"), WALDir: filepath.Join(dir, "wal"),
		}
		res := execute(t, req, ExecOptions{})
		m := res.Members[0]
		cluster := storetest.Start(t, storetest.Options{
			Version: version, DataDirs: map[string]string{"m1": m.DataDir}, InitialCluster: res.InitialCluster, Auth: true,
			ExtraArgs: []string{"--wal-dir=" + m.WALDir, "--initial-cluster-state=existing"},
		})
		lookAt(t, cluster, from, res)
		cluster.StopAll()
		// Without its data directory it does not bootstrap an empty cluster.
		require.NoError(t, os.Rename(m.DataDir, m.DataDir+".lost"))
		require.NoError(t, os.Rename(m.WALDir, m.WALDir+".lost"))
		startRefused(t, version, append(m.Flags,
			"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0")...)
	}
}

// With AuthOff the restored cluster answers without a password, whatever built it, and
// users and roles are kept.
func TestAuthOff_NeedsNoPassword(t *testing.T) {
	for _, way := range []string{EngineRequorum, EngineEtcdutl, "snapshot file"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			from := realImage(t, "3.6")
			dir := t.TempDir()
			req := Request{
				Image: open(t, from.path), InitialCluster: storetest.InitialCluster(t, "m1"),
				DataDir: filepath.Join(dir, "m1"), Engine: way, AuthOff: true,
			}
			if way == "snapshot file" {
				file := execute(t, Request{Image: req.Image, Path: filepath.Join(dir, "file"), AuthOff: true}, ExecOptions{})
				req.Image, req.Engine, req.AuthOff, req.Bump.Mode = open(t, file.Path), "", false, BumpNone
			}
			res := execute(t, req, ExecOptions{})
			cluster := storetest.Start(t, storetest.Options{
				Version: "3.6", DataDirs: map[string]string{"m1": res.Members[0].DataDir}, InitialCluster: res.InitialCluster,
				ExtraArgs: []string{"--initial-cluster-state=existing"},
			})
			require.NoError(t, from.filled.Compare(t.Context(), cluster.Client(t)), "keys, leases, users, without a password")
			status, err := cluster.Client(t).AuthStatus(t.Context())
			require.NoError(t, err)
			require.False(t, status.Enabled)
		})
	}
}
