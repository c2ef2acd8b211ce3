package structure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
)

// Promise 7: what real members of each version write under a mixed load is
// sound: in snapshots that were taken meanwhile, in the files of members that
// were killed in the middle of it, and that were stopped. The hash is the one
// that the cluster serves. Without the soak it
// is the oldest and the newest version, with -short the newest.
func TestEachVersionIsSound(t *testing.T) {
	o := storetest.MixedOptions{Ops: 800, Seed: 7, Observations: 4}
	if storetest.Soak() {
		o.Ops = 20_000
	}
	for _, version := range storetest.Some("3.4", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
			ctx, cancel := context.WithCancel(t.Context())
			taken := make(chan int)
			go func() { taken <- checkSnapshots(ctx, t, c) }()
			r := storetest.RunMixed(t, c, o)
			cancel()
			n := <-taken
			t.Logf("%d snapshots meanwhile, of %d operations", n, r.Total())
			if n == 0 {
				t.Error("no snapshot was taken under load")
			}
			stop := storetest.StartWriter(t, c.Client(t, 1, 2), "/late/")
			time.Sleep(50 * time.Millisecond)
			c.Kill(0)
			stop.Stop()
			checkMember(t, c, 0)
			final := settled(t, c, 1)
			c.Stop(1)
			result := checkMember(t, c, 1)
			if h := result.HashKV; h.Hash != final.Hash || h.Revision != final.Header.Revision || h.CompactedRevision != final.CompactRevision {
				t.Errorf("%+v; the cluster served %+v", h, final)
			}
		})
	}
}

// settled is what a member serves once nothing changes any more: a write that
// was under way when its client ended may still arrive, and one that the leader
// took before it was killed does once there is another one.
func settled(t *testing.T, c *storetest.Cluster, i int) *clientv3.HashKVResponse {
	t.Helper()
	c.WriteOut(t, i)
	for before := int64(0); ; time.Sleep(300 * time.Millisecond) {
		h, err := c.Client(t, i).HashKV(t.Context(), c.Member(i).ClientURL, 0)
		must(t, err)
		if h.Header.Revision == before {
			return h
		}
		before = h.Header.Revision
	}
}

func checkMember(t *testing.T, c *storetest.Cluster, i int) Result {
	t.Helper()
	db, err := os.ReadFile(filepath.Join(c.Member(i).DataDir, "member/snap/db"))
	must(t, err)
	r := sound(t, db, Options{})
	for _, note := range r.Notes {
		t.Log(note)
	}
	return r
}

// checkSnapshots takes snapshots of all members in turn, until the context
// ends, and checks them.
func checkSnapshots(ctx context.Context, t *testing.T, c *storetest.Cluster) (n int) {
	for i := 0; ctx.Err() == nil; i++ {
		member := c.Member(i % 3)
		db, err := takeSnapshot(ctx, member.ClientURL)
		if err != nil {
			time.Sleep(20 * time.Millisecond) // a member may be busy with its users
			continue
		}
		r, err := Check(ctx, bytes.NewReader(db), int64(len(db)), Options{})
		if err != nil {
			continue
		}
		n++
		for _, f := range r.Findings {
			t.Errorf("false alarm in a snapshot of %s: %s: %s", member.Name, f.Kind, f)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return n
}

func takeSnapshot(ctx context.Context, endpoint string) ([]byte, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Username: storetest.RootUser, Password: storetest.RootPassword, Logger: zap.NewNop(), DialTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	stream, err := client.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	db, err := io.ReadAll(stream)
	return db[:len(db)-len(db)%512], errors.Join(err, stream.Close())
}
