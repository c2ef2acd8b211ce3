package recovery

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/snapshot"
)

// inheriting is a coordinator of three hosts that finds what run "lost" has built on them.
func inheriting(t *testing.T, proved bool) (*coordinator, *adopted) {
	t.Helper()
	cfg := &Config{Cluster: "production"}
	d := &coordinator{cfg: cfg, reporter: &reporter{}, now: time.Now, state: newRunState(), run: "this"}
	plan := &restore.Plan{ClusterID: 7, ClusterToken: "token"}
	a := &adopted{run: "lost", built: map[string]*host.Rebuilt{}, was: &host.Built{Run: "lost", Old: 5, New: 7}, ago: time.Hour, proved: proved}
	for _, name := range []string{"m1", "m2", "m3"} {
		h := HostConfig{Member: name, ClientURLs: []string{"http://" + name + ":2379"}}
		cfg.Hosts = append(cfg.Hosts, h)
		d.hosts = append(d.hosts, &participant{HostConfig: h, state: HostState{Member: name}})
		plan.Members = append(plan.Members, restore.Member{Name: name})
		a.built[name] = &host.Rebuilt{Restore: &restore.Result{Plan: plan, RevisionAfter: 9}, Index: 20, Revision: 9, HashKV: snapshot.HashKV{Hash: 1, Revision: 9}}
	}
	return d, a
}

// TestInheritKilled: one that is killed while it writes down what it inherits leaves
// nothing that the next command would go on with, until all of it stands there: it would
// stop the new members and put back what was set aside.
func TestInheritKilled(t *testing.T) {
	t.Parallel()
	for _, proved := range []bool{true, false} {
		d, a := inheriting(t, proved)
		folder, err := host.OpenFolder(t.TempDir())
		require.NoError(t, err)
		defer folder.Close()
		if d.journal, err = folder.Begin(d.run); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, d.inherit(a))
		all := d.journal.Entries()
		k := newRunState()
		for i, e := range all {
			require.NoError(t, k.take(e))
			if whole := i == len(all)-1; k.over() == whole || k.inheriting() == whole || k.begun(PhaseStart, "*") != whole {
				t.Errorf("proved %t: after %d of %d entries (%s %s): over %t, begun %t", proved, i+1, len(all), e.Event, e.Phase, k.over(), k.begun(PhaseStart, "*"))
			}
		}
		if i, err := folder.Begin("killed"); err != nil {
			t.Error(err)
		} else if _, err := i.Add(host.Entry{Event: host.EventDecided}, d.state.decision); err != nil {
			t.Error(err)
		}
		d.runs = folder.Runs()
		if r, _, err := d.lastToUndo(); err != nil || len(d.runs) != 2 || r.ID() != d.run {
			t.Errorf("an undo takes %v, %v", r, err)
		}
		if k.done(PhaseProve, "") != proved {
			t.Errorf("proved %t: it stands there as %t", proved, !proved)
		}
		if built, err := d.rebuilt(); err != nil || len(built) != 3 {
			t.Errorf("%v, %v", built, err)
		}
		req, err := d.proofRequest(a.built)
		if err != nil || time.Since(req.Started) < time.Hour {
			t.Errorf("leases would be missed that ended since the members were started: %s, %v", req.Started, err)
		}
	}
}

// TestInheritsOnePiece: what the hosts remember is completed only where they have built
// the same, and all of it.
func TestInheritsOnePiece(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*coordinator, *adopted)
		want   string // part of the error; empty for none
	}{
		{"as it was built", func(*coordinator, *adopted) {}, ""},
		{"one of another cluster", func(_ *coordinator, a *adopted) {
			a.built["m2"].Restore = &restore.Result{Plan: &restore.Plan{ClusterID: 8}, RevisionAfter: 9}
		}, "m2 built a member of cluster"},
		{"one of another index", func(_ *coordinator, a *adopted) { a.built["m3"].Index++ }, "the raft index of m3 is 21"},
		{"one of another hash", func(_ *coordinator, a *adopted) { a.built["m3"].HashKV.Hash++ }, "the hash (HashKV) of m3"},
		{"one without", func(_ *coordinator, a *adopted) { delete(a.built, "m3") }, "--declare-dead m3"},
		{"one without, declared dead", func(d *coordinator, a *adopted) { delete(a.built, "m3"); d.host("m3").state.Dead = true }, ""},
		{"one away", func(d *coordinator, a *adopted) { delete(a.built, "m3"); d.host("m3").state.Unreachable = "no route" }, ""},
		{"one that does not say", func(_ *coordinator, a *adopted) { a.built["m1"].Restore = nil }, "m1 does not remember"},
	} {
		d, a := inheriting(t, false)
		c.change(d, a)
		err := d.onePiece(a)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
