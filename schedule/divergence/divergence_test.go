package divergence_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/schedule/divergence"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

var quick = divergence.Options{Pause: 50 * time.Millisecond}

func dial(t *testing.T, c *storetest.Cluster) *store.Client {
	t.Helper()
	client, err := store.Dial(t.Context(), c.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func compare(t *testing.T, client *store.Client) divergence.Result {
	t.Helper()
	r, err := divergence.Compare(t.Context(), client, quick)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func namesOf(members []divergence.Member) string {
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if altered == 0 {
		t.Fatalf("nothing was altered: there is no %s", key)
	}
}

func put(t *testing.T, etcd *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := etcd.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// versions are those whose hashes can be compared: some, and in a soak all.
func versions(some ...string) []string {
	return slices.DeleteFunc(storetest.Some(some...), func(v string) bool { return v == "3.4" })
}

// A member whose database was altered on its disk is found and named; before that
// all are equal. Etcd's own alarm is read.
func TestCompare(t *testing.T) {
	for _, version := range versions("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
			c.Fill(t, storetest.Load{Keys: 500, Deletes: 50, Compact: true})
			etcd := c.Client(t)
			put(t, etcd, "altered", "value")
			client := dial(t, c)
			r := compare(t, client)
			if len(r.Hashes) != 3 || len(r.Divergent)+len(r.Unknown)+len(r.Corrupt) != 0 || r.Err() != nil || r.Revision == 0 {
				t.Fatalf("a cluster that is well: %+v", r)
			}

			c.Stop(1)
			alter(t, c, 1, "altered")
			c.Restart(t, 1)
			c.WaitReady(t)
			r = compare(t, client)
			if namesOf(r.Divergent) != "m2" || r.Undecided || !errors.Is(r.Err(), divergence.ErrDivergent) || !strings.Contains(r.Err().Error(), "m2") {
				t.Errorf("m2 was altered: %+v", r)
			}

			// Of two that differ nobody can say which is right.
			c.Kill(0)
			r, err := divergence.Compare(t.Context(), client, divergence.Options{Pause: 500 * time.Millisecond}) // if need be a leader is elected first
			if err != nil {
				t.Fatal(err)
			}
			if namesOf(r.Divergent) != "m2 m3" || !r.Undecided || len(r.Unknown) != 1 || r.Unknown[0].Name != "m1" {
				t.Errorf("m1 is gone, m2 was altered: %+v", r)
			}
			c.Restart(t, 0)
			c.WaitReady(t)

			// The alarm of etcd itself, about a third one.
			id := memberID(t, etcd, c, 2)
			if _, err := pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: pb.AlarmType_CORRUPT}); err != nil {
				t.Fatal(err)
			}
			r = compare(t, client)
			if namesOf(r.Corrupt) != "m3" || !errors.Is(r.Err(), divergence.ErrDivergent) || !strings.Contains(r.Err().Error(), "CORRUPT") {
				t.Errorf("with the alarm: %+v", r)
			}
		})
	}
}

func memberID(t *testing.T, etcd *clientv3.Client, c *storetest.Cluster, i int) uint64 {
	t.Helper()
	resp, err := etcd.Status(t.Context(), c.Endpoints()[i])
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.MemberId
}

// No false alarm while clients write, delete and compact without a pause; and
// comparisons succeed all the same.
func TestCompareUnderLoad(t *testing.T) {
	for _, version := range versions("3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: []string{"--unsafe-no-fsync"}})
			etcd, client := c.Client(t), dial(t, c)
			load, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan int64, 1)
			go func() { done <- churn(load, etcd) }()
			compared := 0
			least := 3 * time.Second
			if storetest.Soak() {
				least = 30 * time.Second
			}
			for began := time.Now(); time.Since(began) < least || compared < 3 && time.Since(began) < time.Minute; {
				r, err := divergence.Compare(t.Context(), client, divergence.Options{Pause: 10 * time.Millisecond, Attempts: 20})
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Divergent) > 0 || r.Err() != nil {
					t.Fatalf("a false alarm: %+v", r)
				}
				if len(r.Hashes) == 3 {
					compared++
				}
			}
			stop()
			compactions := <-done
			if compared < 3 || compactions < 3 {
				t.Errorf("%d comparisons during %d compactions", compared, compactions)
			}
			t.Logf("%d comparisons during %d compactions", compared, compactions)
		})
	}
}

// churn writes, overwrites, deletes and compacts until ctx ends.
func churn(ctx context.Context, etcd *clientv3.Client) (compactions int64) {
	for n := 0; ctx.Err() == nil; n++ {
		resp, err := etcd.Put(ctx, fmt.Sprintf("k%d", n%50), fmt.Sprint(n))
		if err == nil && n%7 == 0 {
			_, err = etcd.Delete(ctx, fmt.Sprintf("k%d", (n+20)%50))
		}
		if err == nil && n%25 == 0 {
			if _, err = etcd.Compact(ctx, resp.Header.Revision); err == nil {
				compactions++
			}
		}
		if err != nil {
			return compactions
		}
	}
	return compactions
}

// Who cannot be compared is named with the reason, and that is no alarm.
func TestCompareUnknown(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	c.AddLearner(t)
	client := dial(t, c)
	c.Freeze(t, 0)
	r := compare(t, client)
	if len(r.Hashes) != 2 || r.Err() != nil || len(r.Unknown) != 2 {
		t.Fatalf("one frozen and a learner: %+v", r)
	}
	reasons := fmt.Sprint(r.Unknown)
	if !strings.Contains(reasons, "learner") || !strings.Contains(reasons, "answer") || !strings.Contains(r.Text(), "2 members have the same history") {
		t.Errorf("%s; %s", reasons, r.Text())
	}
	c.Thaw(t, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := divergence.Compare(ended, client, quick); err == nil {
		t.Errorf("got %+v", r)
	}
}
