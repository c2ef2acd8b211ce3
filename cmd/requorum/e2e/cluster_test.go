package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// source is a real cluster with everything in it that a backup has to carry:
// users and roles that are enforced, leases with keys, overwritten and deleted
// keys, a compacted past, and a writer that never stops.
type source struct {
	*storetest.Cluster
	filled *storetest.Filled
	writer *storetest.Writer
	// first is a revision after the compaction that a watch can start from.
	first int64
}

const writerPrefix = "/writer/"

func startSource(t *testing.T, version string) *source {
	t.Helper()
	s := &source{Cluster: storetest.Start(t, storetest.Options{Version: version, Members: 3})}
	s.filled = s.Fill(t, storetest.Load{
		Keys: short(3000, 200_000), Overwrites: short(800, 40_000), Deletes: short(400, 20_000),
		Leases: short(20, 500), Users: 3,
	})
	client := s.Client(t)
	// Compacted at a put: what 3.5.15 makes of a deletion at the
	// compacted revision differs from what later ones do.
	marker, err := client.Put(t.Context(), "/compacted-here", "x")
	require.NoError(t, err)
	_, err = client.Compact(t.Context(), marker.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	s.first = marker.Header.Revision + 1
	s.writer = storetest.StartWriter(t, client, writerPrefix)
	s.writer.WaitFor(t, 20)
	return s
}

// rootUser are the variables that log in to a source.
func rootUser() string {
	return "ETCDCTL_USER=" + storetest.RootUser + ":" + storetest.RootPassword
}

// hashAt is the HashKV that a member serves, at a revision.
func hashAt(t testing.TB, c *storetest.Cluster, member int, revision int64) snapshot.HashKV {
	t.Helper()
	client := c.Client(t, member)
	if _, err := client.Get(t.Context(), "x"); err != nil { // waits until it has caught up
		t.Fatal(err)
	}
	h, err := client.HashKV(t.Context(), c.Member(member).ClientURL, revision)
	require.NoError(t, err, "HashKV of %s at revision %d", c.Member(member).Name, revision)
	return snapshot.HashKV{Hash: h.Hash, Revision: revision, CompactedRevision: h.CompactRevision}
}

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("m%d", i+1))
	}
	return out
}

// startRestored starts what a restore built with a version's etcd.
func startRestored(t testing.TB, version string, r restoreReport) *storetest.Cluster {
	t.Helper()
	dirs := map[string]string{}
	for _, m := range r.Restore.Members {
		dirs[m.Name] = m.DataDir
	}
	return storetest.Start(t, storetest.Options{
		Version: version, DataDirs: dirs, InitialCluster: r.Restore.InitialCluster, Auth: r.Restore.Plan.Source.Facts.AuthEnabled,
		ExtraArgs: []string{"--initial-cluster-state=existing"},
	})
}

// expectWrites wants every write that was acknowledged before the backup began
// in the restored cluster, as it was.
func expectWrites(t testing.TB, ctx context.Context, client *clientv3.Client, acks []storetest.Ack) {
	t.Helper()
	found := map[string]storetest.Ack{}
	from, end := writerPrefix, clientv3.GetPrefixRangeEnd(writerPrefix)
	for {
		resp, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(5000))
		require.NoError(t, err)
		for _, kv := range resp.Kvs {
			found[string(kv.Key)] = storetest.Ack{Key: string(kv.Key), Value: string(kv.Value), Revision: kv.ModRevision}
		}
		if !resp.More {
			break
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
	if len(acks) == 0 {
		t.Error("no write was acknowledged before the backup")
	}
	for _, a := range acks {
		if found[a.Key] != a {
			t.Errorf("acknowledged before the backup: %+v; restored: %+v", a, found[a.Key])
			return
		}
	}
}

// expectLeases wants the leases to run, none with more than it was granted.
// What they were granted, and their keys, Compare has looked at.
func expectLeases(t testing.TB, ctx context.Context, client *clientv3.Client, filled *storetest.Filled) {
	t.Helper()
	for id := range filled.Leases {
		live, err := client.TimeToLive(ctx, clientv3.LeaseID(id))
		if err != nil || live.TTL <= 0 || live.TTL > live.GrantedTTL {
			t.Errorf("lease %x: %+v, %v", id, live, err)
		}
	}
}

// expectRoles wants authentication to be on, and a role to end where it ended.
func expectRoles(t testing.TB, ctx context.Context, c *storetest.Cluster) {
	t.Helper()
	login := func(user, password string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()[:1], Username: user, Password: password, DialTimeout: 10 * time.Second,
			DialOptions: []grpc.DialOption{storetest.AskAgain()}})
		require.NoError(t, err, "log in as %q", user)
		t.Cleanup(func() { client.Close() })
		return client
	}
	one := login("user1", "password-of-user1")
	_, err := one.Put(ctx, "/user1/key", "mine")
	require.NoError(t, err, "user1 in its own prefix")
	if _, err := one.Put(ctx, "/user2/key", "not mine"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("user1 in another prefix: %v, want permission denied", err)
	}
	if _, err := login("", "").Get(ctx, "/user1/key"); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("without a login: %v, want user name is empty", err)
	}
	_, err = clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "user1", Password: "wrong", DialTimeout: 10 * time.Second})
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed, "with a wrong password")
}

// expectSwap wants optimistic locking as Kubernetes does it to go on: by mod
// revision, and with revisions that no client has seen before.
func expectSwap(t testing.TB, ctx context.Context, client *clientv3.Client, filled *storetest.Filled, above int64) {
	t.Helper()
	keys := make([]string, 0, len(filled.Keys))
	for k := range filled.Keys {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	key := keys[len(keys)/2]
	known := filled.Keys[key].Mod
	swap := func(rev int64, value string) *clientv3.TxnResponse {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // which is not made twice
		defer cancel()
		resp, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", rev)).
			Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
		require.NoError(t, err)
		return resp
	}
	if resp := swap(known-1, "wrong"); resp.Succeeded || resp.Responses[0].GetResponseRange().Kvs[0].ModRevision != known {
		t.Errorf("%s: a swap against a revision that it never had: %v", key, resp)
	}
	first := swap(known, "one")
	if !first.Succeeded || first.Header.Revision <= above {
		t.Errorf("%s: a swap against the known revision %d: succeeded %v, at revision %d, want above %d", key, known, first.Succeeded, first.Header.Revision, above)
	}
	if swap(known, "two").Succeeded {
		t.Errorf("%s: a second swap against revision %d succeeded", key, known)
	}
	if !swap(first.Header.Revision, "three").Succeeded {
		t.Errorf("%s: a swap against the new revision %d failed", key, first.Header.Revision)
	}
}

// firstWatch is what a watch from an old revision hears first.
func firstWatch(t testing.TB, ctx context.Context, c *storetest.Cluster, revision int64) clientv3.WatchResponse {
	t.Helper()
	// Through one member: another may not know the login's token yet, and a watch
	// does not try again.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	w, ok := <-c.Client(t, 0).Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	if !ok || ctx.Err() != nil {
		t.Fatalf("a watch from revision %d: silence", revision)
	}
	return w
}

// expectCompacted wants clients that remember a revision to hear that it is
// gone.
func expectCompacted(t testing.TB, ctx context.Context, c *storetest.Cluster, revisions ...int64) {
	t.Helper()
	for _, old := range revisions {
		if w := firstWatch(t, ctx, c, old); !errors.Is(w.Err(), rpctypes.ErrCompacted) || w.CompactRevision <= old {
			t.Errorf("a watch from revision %d: %+v, %v; want compacted", old, w, w.Err())
		}
		if _, err := c.Client(t, 0).Get(ctx, "x", clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a read at revision %d: %v, want compacted", old, err)
		}
	}
}

// expectEqual wants all members to hold the same at head.
func expectEqual(t testing.TB, ctx context.Context, c *storetest.Cluster) {
	t.Helper()
	head, err := c.Client(t).Get(ctx, "x")
	require.NoError(t, err)
	var first snapshot.HashKV
	for i := range c.Size() {
		h := hashAt(t, c, i, head.Header.Revision)
		if i == 0 {
			first = h
		} else if h != first {
			t.Errorf("at head %s has %+v, %s has %+v", c.Member(i).Name, h, c.Member(0).Name, first)
		}
	}
}

// startPlain is a cluster without users, with values that do not compress.
func startPlain(t *testing.T, version string, members, keys, valueSize int) *storetest.Cluster {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version, Members: members})
	fillRandom(t, c.Client(t), keys, valueSize)
	return c
}

// dataDirs is a template for the restored members' directories.
func dataDirs(dir string) string { return filepath.Join(dir, "{name}") }
