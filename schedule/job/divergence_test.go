package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// quickly compares with short pauses.
func quickly(ctx context.Context, cli *client.Client, pause time.Duration) (Comparison, error) {
	return (&comparison{client: cli, logger: slog.New(slog.DiscardHandler), attempts: 20, pause: pause}).run(ctx)
}

func dialCluster(t *testing.T, c *storetest.Cluster) *client.Client {
	t.Helper()
	client, err := client.Dial(t.Context(), c.ClientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// compare compares until so many members have answered: on a busy machine one may take
// longer than a fit member does, or a leader is yet to be elected.
func compare(t *testing.T, cli *client.Client, members int) Comparison {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		r, err := quickly(t.Context(), cli, 50*time.Millisecond)
		if err == nil && len(r.Hashes) == members {
			return r
		}
		if err != nil && !errors.Is(err, client.ErrNoBarrier) {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v: want %d members compared", r, err, members)
		}
	}
}

func namesOf(members []Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// alter changes the value of a key in a stopped member's database.
func alter(t *testing.T, c *storetest.Cluster, i int, key string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(c.Member(i).DataDir, "member", "snap", "db"), 0o600, nil)
	require.NoError(t, err)
	altered := 0
	err = db.Update(func(tx *bbolt.Tx) error {
		rows := tx.Bucket([]byte("key"))
		return rows.ForEach(func(k, v []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil || string(kv.Key) != key {
				return err
			}
			kv.Value = []byte("altered")
			data, err := proto.Marshal(&kv)
			if err != nil {
				return err
			}
			altered++
			return rows.Put(slices.Clone(k), data)
		})
	})
	require.NoError(t, errors.Join(err, db.Close()))
	if altered == 0 {
		t.Fatalf("nothing was altered: there is no %s", key)
	}
}

func putKey(t *testing.T, etcd *clientv3.Client, key, value string) {
	t.Helper()
	_, err := etcd.Put(t.Context(), key, value)
	require.NoError(t, err)
}

// versions are those whose hashes can be compared: some, and in a soak all.
func versions(some ...string) []string {
	if testing.Short() {
		some = some[len(some)-1:]
	}
	return storetest.Some(some...)
}

// A member whose database was altered on its disk is found and named; before that
// all are equal.
func TestCompare(t *testing.T) {
	for _, version := range versions("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
			c.Fill(t, storetest.Load{Keys: 500, Deletes: 50, Compact: true})
			etcd := c.Client(t)
			putKey(t, etcd, "altered", "value")
			client := dialCluster(t, c)
			r := compare(t, client, 3)
			if len(r.Divergent)+len(r.Unknown) != 0 || r.Revision == 0 {
				t.Fatalf("a cluster that is well: %+v", r)
			}

			c.Stop(1)
			alter(t, c, 1, "altered")
			c.Restart(t, 1)
			c.WaitReady(t)
			r = compare(t, client, 3)
			if namesOf(r.Divergent) != "m2" || !strings.Contains(r.Text(), "the history of m2 differs from that of the 2 other members") {
				t.Errorf("m2 was altered: %+v", r)
			}

			// Of two that differ nobody can say which is right.
			c.Kill(0)
			r = compare(t, client, 2)
			if namesOf(r.Divergent) != "m2 m3" || !strings.Contains(r.Text(), "it is not known which of") || len(r.Unknown) != 1 || r.Unknown[0].Name != "m1" {
				t.Errorf("m1 is gone, m2 was altered: %+v", r)
			}
		})
	}
}

// No false alarm while clients write, delete and compact without a pause; and
// comparisons succeed all the same.
func TestCompareUnderLoad(t *testing.T) {
	for _, version := range versions("3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: []string{"--unsafe-no-fsync"}})
			etcd, asked := c.Client(t), dialCluster(t, c)
			load, stop := context.WithCancel(t.Context())
			defer stop()
			var compactions atomic.Int64
			done := make(chan struct{})
			go func() { defer close(done); churn(load, etcd, &compactions) }()
			compared := 0
			least := 3 * time.Second
			if testing.Short() {
				least = 0
			}
			if storetest.Soak() {
				least = 30 * time.Second
			}
			for began := time.Now(); time.Since(began) < least || (compared < 3 || compactions.Load() < 3) && time.Since(began) < time.Minute; {
				r, err := quickly(t.Context(), asked, 10*time.Millisecond)
				if errors.Is(err, client.ErrNoBarrier) {
					continue // a leader is elected
				}
				require.NoError(t, err)
				if len(r.Divergent) > 0 {
					t.Fatalf("a false alarm: %+v", r)
				}
				if len(r.Hashes) == 3 {
					compared++
				}
			}
			stop()
			<-done
			if compared < 3 || compactions.Load() < 3 {
				t.Errorf("%d comparisons during %d compactions", compared, compactions.Load())
			}
		})
	}
}

// churn writes, overwrites, deletes and compacts until ctx ends.
func churn(ctx context.Context, etcd *clientv3.Client, compactions *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		resp, err := etcd.Put(ctx, fmt.Sprintf("k%d", n%50), fmt.Sprint(n))
		if err == nil && n%7 == 0 {
			_, err = etcd.Delete(ctx, fmt.Sprintf("k%d", (n+20)%50))
		}
		if err == nil && n%25 == 0 {
			if _, err = etcd.Compact(ctx, resp.Header.Revision); err == nil {
				compactions.Add(1)
			}
		}
		if err != nil {
			return
		}
	}
}

// Who cannot be compared is named with the reason, and that is no alarm.
func TestCompareUnknown(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	c.AddLearner(t)
	client := dialCluster(t, c)
	c.Freeze(t, 0)
	r := compare(t, client, 2)
	if len(r.Divergent) > 0 || len(r.Unknown) != 2 {
		t.Fatalf("one frozen and a learner: %+v", r)
	}
	reasons := fmt.Sprint(r.Unknown)
	if !strings.Contains(reasons, "learner") || !strings.Contains(reasons, "answer") || !strings.Contains(r.Text(), "2 members have the same history") {
		t.Errorf("%s; %s", reasons, r.Text())
	}
	c.Thaw(t, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := quickly(ended, client, 50*time.Millisecond); err == nil {
		t.Errorf("got %+v", r)
	}
}

func TestJudge(t *testing.T) {
	const fixed, old = "3.5.16", "3.5.15"
	for _, tt := range []struct {
		name      string
		hashes    []uint32
		version   string
		divergent []uint64
		unknown   int
	}{
		{"one", []uint32{1}, fixed, nil, 0},
		{"equal", []uint32{1, 1, 1}, fixed, nil, 0},
		{"equal, old", []uint32{1, 1, 1}, old, nil, 0},
		{"one of three", []uint32{1, 2, 1}, fixed, []uint64{1}, 0},
		{"two of five", []uint32{1, 2, 1, 3, 1}, fixed, []uint64{1, 3}, 0},
		{"no majority", []uint32{1, 2}, fixed, []uint64{0, 1}, 0},
		{"half is no majority", []uint32{1, 1, 2, 3}, fixed, []uint64{0, 1, 2, 3}, 0},
		{"old servers differ without a fault", []uint32{1, 2, 1}, old, nil, 3},
	} {
		var r Comparison
		for i, h := range tt.hashes {
			r.Hashes = append(r.Hashes, MemberHash{Member{ID: uint64(i)}, tt.version, h})
		}
		r.judge()
		var got []uint64
		for _, m := range r.Divergent {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, tt.divergent) || len(r.Unknown) != tt.unknown {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}
