package job

import (
	"context"
	"errors"
	"fmt"
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
		r, err := Compare(t.Context(), cli)
		if err == nil && r.Compared == members {
			return r
		}
		if err != nil && !passes(err) {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v: want %d members compared", r, err, members)
		}
	}
}

// passes reports whether members may be comparable soon: a leader is elected, or the
// cluster compacted its history.
func passes(err error) bool {
	return errors.Is(err, client.ErrNoBarrier) || strings.Contains(err.Error(), "compacted its history")
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
			if len(r.Divergent) != 0 || r.Revision == 0 || strings.Contains(r.Text, "not compared") {
				t.Fatalf("a cluster that is well: %+v", r)
			}

			c.Stop(1)
			alter(t, c, 1, "altered")
			c.Restart(t, 1)
			c.WaitReady(t)
			r = compare(t, client, 3)
			if !slices.Equal(r.Divergent, []string{"m2"}) || !strings.Contains(r.Text, "the history of m2 differs from that of the others;") {
				t.Errorf("m2 was altered: %+v", r)
			}

			// Of two that differ nobody can say which is right.
			c.Kill(0)
			r = compare(t, client, 2)
			if !slices.Equal(r.Divergent, []string{"m2", "m3"}) || !strings.Contains(r.Text, "no majority shows which is right") || !strings.Contains(r.Text, "; m1 was not compared: ") {
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
				r, err := Compare(t.Context(), asked)
				if err != nil && passes(err) {
					continue
				}
				require.NoError(t, err)
				if len(r.Divergent) > 0 {
					t.Fatalf("a false alarm: %+v", r)
				}
				if r.Compared == 3 {
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
	if len(r.Divergent) > 0 || strings.Count(r.Text, "was not compared: ") != 2 {
		t.Fatalf("one frozen and a learner: %+v", r)
	}
	if !strings.Contains(r.Text, "learner") || !strings.Contains(r.Text, "answer") || !strings.Contains(r.Text, "compared: 2, all with the same history") {
		t.Error(r.Text)
	}
	c.Thaw(t, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Compare(ended, client); err == nil {
		t.Errorf("got %+v", r)
	}
}

func TestJudge(t *testing.T) {
	const fixed, old = "3.5.16", "3.5.15"
	for _, tt := range []struct {
		name      string
		hashes    []uint32
		version   string
		divergent []string
		fails     bool
	}{
		{"one", []uint32{1}, fixed, nil, false},
		{"equal", []uint32{1, 1, 1}, fixed, nil, false},
		{"equal, old", []uint32{1, 1, 1}, old, nil, false},
		{"one of three", []uint32{1, 2, 1}, fixed, []string{"m1"}, false},
		{"two of five", []uint32{1, 2, 1, 3, 1}, fixed, []string{"m1", "m3"}, false},
		{"no majority", []uint32{1, 2}, fixed, []string{"m0", "m1"}, false},
		{"half is no majority", []uint32{1, 1, 2, 3}, fixed, []string{"m0", "m1", "m2", "m3"}, false},
		{"old servers differ without a fault", []uint32{1, 2, 1}, old, nil, true},
	} {
		var answers []answer
		for i, h := range tt.hashes {
			answers = append(answers, answer{fmt.Sprint("m", i), tt.version, client.HashKV{Hash: h}})
		}
		got, err := judge(answers, 7)
		if !slices.Equal(got.Divergent, tt.divergent) || (err != nil) != tt.fails {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}
