package host

import (
	"context"
	"reflect"
	"slices"
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
	builder := hosts[slices.IndexFunc(hosts, func(h *testHost) bool { return h.name == chosen })]
	first, err := operators[builder].Rebuild(ctx, plan)
	require.NoError(t, err)
	if len(first.Brought) > 0 || first.Image == nil {
		t.Errorf("%s built %+v", chosen, first)
	}
	own := plan
	plan.Image = first.Image
	results := map[*testHost]*Rebuilt{builder: first}
	for _, h := range hosts {
		if h != builder {
			results[h], err = operators[h].Rebuild(ctx, plan)
			require.NoError(t, err)
			if b := results[h].Brought[0]; b.From != chosen || b.Bytes == 0 || !reflect.DeepEqual(state(results[h]), state(first)) {
				t.Errorf("%s: %+v", h.name, results[h])
			}
		}
		if left := h.leftovers(); len(left) > 0 {
			t.Errorf("%s: %v is left", h.name, left)
		}
	}
	for _, h := range hosts {
		_, err = operators[h].Start(ctx, nil)
		require.NoError(t, err)
	}
	serves(t, l, results[hosts[0]])

	// Done again: not while it runs, and what was built afterwards.
	_, err = operators[builder].Rebuild(ctx, own)
	require.ErrorContains(t, err, "running", "a member that runs")
	_, err = operators[builder].Stop(ctx)
	require.NoError(t, err)
	again, err := operators[builder].Rebuild(ctx, own)
	if err != nil || !again.Earlier || again.Image.ID != first.Image.ID || !reflect.DeepEqual(state(again), state(first)) || again.Restore.Members == nil {
		t.Errorf("again: %+v %v", again, err)
	}
}

// state is what has to be equal on all hosts.
func state(r *Rebuilt) any {
	return []any{r.Index, r.Term, r.Revision, r.HashKV, r.Restore.Plan.ClusterID, r.Restore.RevisionAfter}
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
