package client_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// What a member is unfit for, as a pattern of what Unfit says.
const (
	fit          = `^$`
	notAnswering = `^it does not answer: `
	notReading   = `answers nothing within|does not answer within`            // frozen, or being defragmented
	catchingUp   = `^it is catching up: it lacks ([5-9]\d{3}|\d{5,}) entries` // FarBehind at least
)

// becomes waits until that is what is against the member at the cluster's i-th endpoint,
// as it was surveyed when all was well: on a busy machine it can be slow in answering
// for a while.
func becomes(t *testing.T, cli *client.Client, s client.Survey, i int, want string) {
	t.Helper()
	endpoint := cli.Endpoints()[i]
	at := slices.IndexFunc(s.Members, func(m client.MemberStatus) bool { return m.Endpoint == endpoint })
	why := ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		begun := time.Now()
		var err error
		why, err = cli.Unfit(t.Context(), s.Members[at])
		require.NoError(t, err)
		if took := time.Since(begun); took > 30*time.Second { // on a machine that is very busy
			t.Errorf("asking took %s", took)
		}
		if regexp.MustCompile(want).MatchString(why) {
			return
		}
	}
	t.Errorf("it is unfit for %q, and not for %q", why, want)
}

// putMany makes n entries, by many writers at once.
func putMany(t *testing.T, cli *clientv3.Client, n, size int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(64)
	value := strings.Repeat("v", size)
	for i := range n {
		group.Go(func() error {
			for {
				_, err := cli.Put(ctx, fmt.Sprintf("many%06d", i), value)
				if err == nil || ctx.Err() != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond) // a leader is elected, or all are busy
			}
		})
	}
	require.NoError(t, group.Wait())
}

// Each reason against a member, on real servers of each version, is seen while it
// holds and not afterwards.
func TestFitness(t *testing.T) {
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			args := []string{"--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"}
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: args, TLS: version == "3.6"})
			config := c.ClientConfig()
			config.Endpoints = c.Endpoints()
			cli := dial(t, config)
			s := survey(t, cli)
			for i := range 3 {
				becomes(t, cli, s, i, fit)
			}
			putMany(t, c.Client(t), 300, 256<<10)
			for i := range 3 {
				becomes(t, cli, s, i, fit)
			}
			t.Run("defragmenting", func(t *testing.T) { checkDefragmenting(t, c, cli, s) })
			t.Run("catching up", func(t *testing.T) {
				if version == "3.6" {
					return // as their successors do, and it takes very many writes
				}
				c.Isolate(t, 2)
				putMany(t, c.Client(t, 0, 1), client.FarBehind+500, 10)
				becomes(t, cli, s, 2, catchingUp)
				becomes(t, cli, s, 0, fit)
				c.Rejoin(2)
				c.WaitReady(t)
				putMany(t, c.Client(t, 0), 1, 10) // see Unfit
				becomes(t, cli, s, 2, fit)
			})
			t.Run("frozen", func(t *testing.T) {
				c.Freeze(t, 1)
				becomes(t, cli, s, 1, notReading)
				c.Thaw(t, 1)
				becomes(t, cli, s, 1, fit)
			})
			t.Run("gone", func(t *testing.T) {
				c.Kill(1)
				becomes(t, cli, s, 1, notAnswering)
				c.Restart(t, 1)
				c.WaitReady(t)
				becomes(t, cli, s, 1, fit)
			})
		})
	}
}

// checkDefragmenting asks over and over while a member is defragmented.
func checkDefragmenting(t *testing.T, c *storetest.Cluster, cli *client.Client, s client.Survey) {
	defragmented := make(chan error, 1)
	etcd := c.Client(t)
	go func() {
		_, err := etcd.Defragment(t.Context(), c.Endpoints()[0])
		defragmented <- err
	}()
	// One that begins to ask just before would wait for the end: so several ask.
	var (
		mu   sync.Mutex
		seen = map[string]bool{}
		wg   sync.WaitGroup
	)
	for done := false; !done; {
		wg.Go(func() {
			why, err := cli.Unfit(t.Context(), s.Members[0])
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[why] = true
		})
		select {
		case err := <-defragmented:
			require.NoError(t, err)
			done = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	wg.Wait()
	becomes(t, cli, s, 0, fit)
	// A defragmentation that is over within a second is waited for; a longer one
	// is silence, and on a machine that stands still not even its address answers.
	for why := range seen {
		if !regexp.MustCompile(fit + "|" + notReading + "|" + notAnswering).MatchString(why) {
			t.Errorf("while it was defragmented it was seen to be unfit for %q", why)
		}
	}
}

// The error is for the end of the context, and for a member of nobody.
func TestFitnessErrors(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	cli := dial(t, client.Config{Endpoints: c.Endpoints()})
	s := survey(t, cli)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if why, err := cli.Unfit(ended, s.Members[0]); err == nil {
		t.Errorf("got %q", why)
	}
	if why, err := cli.Unfit(t.Context(), client.MemberStatus{Endpoint: "http://127.0.0.1:1"}); err == nil {
		t.Errorf("got %q", why)
	}
	if why, err := cli.Unfit(t.Context(), client.MemberStatus{Endpoint: s.Members[0].Endpoint}); err != nil || why != "" {
		t.Errorf("by the endpoint alone: %q, %v", why, err)
	}
	// What answers there now is another member.
	other := s.Members[0]
	other.MemberID++
	if why, err := cli.Unfit(t.Context(), other); err != nil || !regexp.MustCompile(notAnswering).MatchString(why) {
		t.Errorf("got %q, %v", why, err)
	}
}
