package host

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

func storeClient(t *testing.T, c *storetest.Cluster) *client.Client {
	t.Helper()
	client, err := client.Dial(t.Context(), c.ClientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestCluster: promises 1 to 5, on three hosts, from a power cut to a cluster that
// serves everything.
func TestCluster(t *testing.T) {
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // it mostly waits
			testCluster(t, version)
		})
	}
}

func testCluster(t *testing.T, version string) {
	l := lose(t, version)
	members := storetest.InitialCluster(t, l.c.Member(0).Name, l.c.Member(1).Name, l.c.Member(2).Name)
	var hosts []*testHost
	for i := range 3 {
		hosts = append(hosts, l.host(t, i, l.c.Member(i).DataDir, members))
	}
	ctx := t.Context()
	operators := map[*testHost]*Client{}
	for _, h := range hosts {
		operators[h] = h.operator(run1, hosts...)
		if state, err := operators[h].Member(ctx); err != nil || !state.Stopped {
			t.Fatalf("%s: %+v %v", h.name, state, err)
		}
	}
	l.survey(t, "", hosts...)
	before := l.plan
	if !before.Proven {
		t.Errorf("unproven with all of the survivors: %s", before.Why)
	}
	for _, h := range hosts {
		h.setAside(run1)
	}
	l.survey(t, run1, hosts...)
	if l.plan.Chosen != before.Chosen || !reflect.DeepEqual(l.plan.Candidate(before.Chosen).Source.Log, before.Candidate(before.Chosen).Source.Log) {
		t.Errorf("what was set aside gives another plan: %s, was %s", l.plan.Chosen, before.Chosen)
	}

	plan := l.planned(t, *l.plan.Candidate(l.plan.Chosen).Source)
	var err error
	plan.InitialCluster = members
	plan.New, err = restore.ClusterID(members, token)
	require.NoError(t, err)
	chosen := plan.Source.Base.Owner
	results := rebuildAll(t, operators, plan, namesOf(hosts...))
	for h, r := range results {
		want := HereName
		if h.name != chosen {
			want = chosen
		}
		if b := r.Brought[0]; b.Owner != chosen || b.From != want || b.Bytes == 0 {
			t.Errorf("%s brought %+v, and %s was chosen", h.name, r.Brought, chosen)
		}
		if left := h.leftovers(); len(left) > 0 {
			t.Errorf("%s: %v is left", h.name, left)
		}
	}
	for _, h := range hosts {
		_, err = operators[h].Start(ctx)
		require.NoError(t, err)
	}
	serves(t, l, results[hosts[0]])

	// Done again: not while it runs, and what was built afterwards.
	_, err = operators[hosts[0]].Rebuild(ctx, plan, namesOf(hosts...))
	require.ErrorContains(t, err, "running", "a member that runs")
	_, err = operators[hosts[0]].Stop(ctx)
	require.NoError(t, err)
	again, err := operators[hosts[0]].Rebuild(ctx, plan, namesOf(hosts...))
	if err != nil || !again.Earlier || !reflect.DeepEqual(state(again), state(results[hosts[0]])) || again.Restore.Members == nil {
		t.Errorf("again: %+v %v", again, err)
	}
}

// state is what has to be equal on all hosts.
func state(r *Rebuilt) any {
	return []any{r.Index, r.Term, r.Revision, r.HashKV, r.Restore.Plan.ClusterID, r.Restore.RevisionAfter}
}

// rebuildAll rebuilds all at once, and compares.
func rebuildAll(t *testing.T, operators map[*testHost]*Client, plan RebuildPlan, owners []string) map[*testHost]*Rebuilt {
	t.Helper()
	var mu sync.Mutex
	results := map[*testHost]*Rebuilt{}
	var all sync.WaitGroup
	for h, c := range operators {
		all.Go(func() {
			r, err := c.Rebuild(t.Context(), plan, owners)
			if err != nil {
				t.Errorf("%s: %v", h.name, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			results[h] = r
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	var first *Rebuilt
	for h, r := range results {
		if first == nil {
			first = r
		}
		if !reflect.DeepEqual(state(r), state(first)) {
			t.Errorf("%s: %v, another one: %v", h.name, state(r), state(first))
		}
	}
	return results
}

// serves checks the new cluster's members, keys and hash.
func serves(t *testing.T, l *lost, built *Rebuilt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for three that were just started
	defer cancel()
	for i := range 3 {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{l.c.Member(i).ClientURL}, DialTimeout: 5 * time.Second})
		require.NoError(t, err)
		defer c.Close()
		for {
			if _, err = c.Get(ctx, "before"); err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		require.NoError(t, err, "%s does not serve", l.c.Member(i).Name)
		require.NoError(t, l.fill.Compare(ctx, c), l.c.Member(i).Name)
		h, err := c.HashKV(ctx, l.c.Member(i).ClientURL, built.Revision)
		if err != nil || h.Hash != built.HashKV.Hash {
			t.Errorf("%s: hash %v at %d, want %+v (%v)", l.c.Member(i).Name, h, built.Revision, built.HashKV, err)
		}
		if id := uint64(built.Restore.Plan.ClusterID); h != nil && h.Header.ClusterId != id {
			t.Errorf("cluster %x, want %x", h.Header.ClusterId, id)
		}
	}
}
