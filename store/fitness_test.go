package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

// fitnessOf asks about the member at the cluster's i-th endpoint, as it was
// surveyed when all was well.
func fitnessOf(t *testing.T, client *store.Client, s store.Survey, i int) store.Fitness {
	t.Helper()
	endpoint := client.Endpoints()[i]
	at := slices.IndexFunc(s.Members, func(m store.MemberStatus) bool { return m.Endpoint == endpoint })
	begun := time.Now()
	f, err := client.Fitness(t.Context(), s.Members[at])
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > store.FitnessTimeout+5*time.Second { // on a machine that is very busy
		t.Errorf("asking took %s", took)
	}
	if f.Fit() != (f.Unfit == "") {
		t.Errorf("fit %v, and says %q", f.Fit(), f.Unfit)
	}
	return f
}

func wantReason(t *testing.T, got store.Fitness, want store.Unfitness) {
	t.Helper()
	if got.Reason != want {
		t.Errorf("got %q (%s), want %q", got.Reason, got.Unfit, want)
	}
}

func becomesFit(t *testing.T, client *store.Client, s store.Survey, i int) {
	t.Helper()
	becomes(t, client, s, i, store.Fit)
}

// becomes waits until that is what is against a member: on a busy machine it can
// be slow in answering for a while.
func becomes(t *testing.T, client *store.Client, s store.Survey, i int, want store.Unfitness) (f store.Fitness) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if f = fitnessOf(t, client, s, i); f.Reason == want {
			return f
		}
	}
	t.Errorf("it is %q (%s), and does not become %q", f.Reason, f.Unfit, want)
	return f
}

// putMany makes n entries, by many writers at once.
func putMany(t *testing.T, client *clientv3.Client, n, size int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(64)
	value := strings.Repeat("v", size)
	for i := range n {
		group.Go(func() error {
			for {
				_, err := client.Put(ctx, fmt.Sprintf("many%06d", i), value)
				if err == nil || ctx.Err() != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond) // a leader is elected, or all are busy
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Each reason against a member, on real servers of each version, is seen while it
// holds and not afterwards.
func TestFitness(t *testing.T) {
	for _, version := range storetest.Some("3.4", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			args := []string{"--heartbeat-interval", "50", "--election-timeout", "500"}
			if version != "3.4" {
				args = append(args, "--unsafe-no-fsync")
			}
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: args, TLS: version == "3.6"})
			config := c.ClientConfig()
			config.Endpoints = c.Endpoints()
			client := dial(t, config)
			s := survey(t, client)
			for i := range 3 {
				becomesFit(t, client, s, i)
			}
			putMany(t, c.Client(t), 300, 256<<10)
			for i := range 3 {
				f := fitnessOf(t, client, s, i)
				if !f.Fit() && f.Reason != store.DiskSlow { // it may be, of the machine that tests
					t.Errorf("member %d: %s", i, f.Unfit)
				}
				if !f.Disk.Known || f.Disk.Sync+f.Disk.Commit <= 0 {
					t.Errorf("member %d: the disk is %+v after many writes", i, f.Disk)
				}
			}
			t.Run("defragmenting", func(t *testing.T) { checkDefragmenting(t, c, client, s) })
			t.Run("catching up", func(t *testing.T) {
				if version == "3.4" || version == "3.6" {
					return // as their successors do, and it takes very many writes
				}
				c.Isolate(t, 2)
				putMany(t, c.Client(t, 0, 1), store.FarBehind+500, 10)
				f := becomes(t, client, s, 2, store.CatchingUp)
				if f.Behind < store.FarBehind {
					t.Errorf("it lacks %d entries", f.Behind)
				}
				becomesFit(t, client, s, 0)
				c.Rejoin(2)
				c.WaitReady(t)
				putMany(t, c.Client(t, 0), 1, 10) // see CatchingUp
				becomesFit(t, client, s, 2)
			})
			t.Run("frozen", func(t *testing.T) {
				c.Freeze(t, 1)
				becomes(t, client, s, 1, store.NotReading)
				c.Thaw(t, 1)
				becomesFit(t, client, s, 1)
			})
			t.Run("gone", func(t *testing.T) {
				c.Kill(1)
				becomes(t, client, s, 1, store.NotAnswering)
				c.Restart(t, 1)
				c.WaitReady(t)
				becomesFit(t, client, s, 1)
			})
		})
	}
}

// checkDefragmenting asks over and over while a member is defragmented.
func checkDefragmenting(t *testing.T, c *storetest.Cluster, client *store.Client, s store.Survey) {
	defragmented := make(chan error, 1)
	etcd := c.Client(t)
	go func() {
		_, err := etcd.Defragment(t.Context(), c.Endpoints()[0])
		defragmented <- err
	}()
	// One that begins to ask just before would wait for the end: so several ask.
	var (
		mu   sync.Mutex
		seen = map[store.Unfitness]int{}
		wg   sync.WaitGroup
	)
	for done := false; !done; {
		wg.Go(func() {
			f, err := client.Fitness(t.Context(), s.Members[0])
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[f.Reason]++
		})
		select {
		case err := <-defragmented:
			if err != nil {
				t.Error(err)
			}
			done = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	wg.Wait()
	becomesFit(t, client, s, 0)
	// 3.4 does not tell, and this database does not keep it for a second.
	if seen[store.Defragmenting] == 0 && c.Version() != "3.4" {
		t.Errorf("it was never seen defragmenting: %v", seen)
	}
}

// A member with a slow disk is found by its own metrics; with a disk that hangs,
// while it is defragmented, by its silence.
func TestFitnessSlowDisk(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	client := dial(t, store.ClientConfig{Endpoints: c.Endpoints()})
	s := survey(t, client)
	wantReason(t, fitnessOf(t, client, s, 0), store.Fit)
	slow := c.SlowDisk(t, 0, 150*time.Millisecond)
	putMany(t, c.Client(t), 20, 10)
	time.Sleep(300 * time.Millisecond) // a commit that is under way
	f := fitnessOf(t, client, s, 0)
	wantReason(t, f, store.DiskSlow)
	if max(f.Disk.Sync, f.Disk.Commit) < 150*time.Millisecond || max(f.Disk.Sync, f.Disk.Commit) > time.Minute {
		t.Errorf("the disk is %s", f.Disk)
	}
	slow.Stop(t)
	putMany(t, c.Client(t), 200, 10)
	becomesFit(t, client, s, 0)
}

// The error is for the end of the context, and for a member of nobody.
func TestFitnessErrors(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	client := dial(t, store.ClientConfig{Endpoints: c.Endpoints()})
	s := survey(t, client)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := client.Fitness(ended, s.Members[0]); err == nil {
		t.Errorf("got %+v", f)
	}
	if f, err := client.Fitness(t.Context(), store.MemberStatus{Endpoint: "http://127.0.0.1:1"}); err == nil {
		t.Errorf("got %+v", f)
	}
	if f, err := client.Fitness(t.Context(), store.MemberStatus{Endpoint: s.Members[0].Endpoint}); err != nil || !f.Fit() {
		t.Errorf("by the endpoint alone: %+v, %v", f, err)
	}
	// What answers there now is another member.
	other := s.Members[0]
	other.MemberID++
	f, err := client.Fitness(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, f, store.NotAnswering)
}
