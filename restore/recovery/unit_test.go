package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

func planned(chosen string, proven bool, lost uint64) *sources.Plan {
	p := &sources.Plan{ClusterID: 7, Chosen: chosen, Proven: proven, Loss: sources.Loss{Entries: lost, Text: "entries"}}
	p.Bump = sources.Bump{Raise: !proven, HighestKnown: 500}
	p.Candidates = []sources.Candidate{{Name: chosen, Revision: sources.Bounds{AtLeast: 300, AtMost: 400}, Source: &sources.Source{Index: 90}}}
	return p
}

// Promise 4: what is worse than what was confirmed is asked again, and nothing else.
func TestWorse(t *testing.T) {
	member := []sources.NewMember{{Name: "m1", PeerURLs: []string{"http://a:1"}}}
	for _, c := range []struct {
		what     string
		before   *sources.Plan
		unproven bool // was confirmed
		now      *sources.Plan
		want     string // empty: not worse
	}{
		{"the same", planned("m1", true, 0), false, planned("m1", true, 0), ""},
		{"proven now", planned("m1", false, 3), false, planned("m2", true, 0), ""},
		{"not proven any more", planned("m1", true, 0), false, planned("m1", false, 0), "unproven"},
		{"unproven, which was not confirmed", planned("m1", false, 0), false, planned("m1", false, 0), "unproven"},
		{"unproven, which was confirmed", planned("m1", false, 1), true, planned("m1", false, 1), ""},
		{"another source", planned("m1", false, 0), true, planned("m2", false, 0), "from m2"},
		{"more lost", planned("m1", false, 1), true, planned("m1", false, 2), "more would be lost"},
		{"nothing was known", &sources.Plan{}, false, planned("m1", true, 0), "only now"},
	} {
		d := &decision{Plan: c.before, Unproven: c.unproven, Members: member, Bump: restore.BumpRequest{Mode: restore.BumpBy}}
		got := strings.Join(d.worse(&Preview{Plan: c.now, Members: member}), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	d := &decision{Plan: planned("m1", true, 0), Members: member}
	if got := d.worse(&Preview{Plan: planned("m1", true, 0)}); len(got) != 1 {
		t.Errorf("other members: %q", got)
	}
}

// Promise 8 of the design: whatever revision the replay ends with, within what is
// known of it, what comes out lies 1e9 beyond all that was seen; and nothing is
// raised where nothing is lost.
func TestBump(t *testing.T) {
	if b := bumpOf(planned("m1", true, 0), Asked{}); b.Mode != restore.BumpNone {
		t.Errorf("%+v", b)
	}
	for _, a := range []Asked{{}, {Target: walreplay.Target{Kind: walreplay.AtIndex, Index: 20}}} {
		b := bumpOf(planned("m1", false, 0), a)
		low := int64(300)
		if a.Target.Kind != walreplay.Latest {
			low = 1 // a target may lie before all that is known
		}
		if b.Mode != restore.BumpBy || low+b.Amount < 500+restore.DefaultBump {
			t.Errorf("%+v: %+v", a, b)
		}
	}
	if b := bumpOf(planned("m1", false, 0), Asked{Bump: restore.BumpRequest{Mode: restore.BumpBy, Amount: 9}}); b.Amount != 9 {
		t.Errorf("%+v", b)
	}
}

// Promise 5: a database that differs ends the run, and the error says which is damaged, as
// far as that is known, and what to do. What was named binds.
func TestCompare(t *testing.T) {
	dec := &decision{Plan: planned("m1", true, 0)}
	source := &sources.Source{Base: sources.Base{Owner: "m1", Path: "db"}, Peers: []sources.Peer{{Owner: "m2", Revision: 8, Source: "m2"}}}
	dec.Plan.Candidates[0].Source = source
	d := &coordinator{run: "r", decision: dec, reporter: &reporter{}}
	image := &host.Image{State: host.State{Hashes: []snapshot.HashKV{{Hash: 1, Revision: 8}}}}
	peers := func(hash uint32) sources.PeerHashes {
		return source.ReadPeers(t.Context(), func(context.Context, string, int64) (snapshot.HashKV, error) {
			return snapshot.HashKV{Hash: hash, Revision: 8}, nil
		})
	}
	require.NoError(t, d.compare(t.Context(), image, peers(1)))
	if dec.Compared == nil || len(dec.Compared.Same) != 1 {
		t.Errorf("%+v", dec.Compared)
	}
	var differ *DifferError
	var damaged *snapshot.DamagedError
	err := d.compare(t.Context(), image, peers(2))
	if !errors.As(err, &differ) || !errors.As(err, &damaged) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"nothing is started", "the database of m1 or m2", "nothing shows", "--undo", "--source m1, or --source m2"} {
		require.ErrorContains(t, err, want)
	}
	dec.Plan.Named = true
	require.NoError(t, d.compare(t.Context(), image, peers(2)))
	if !dec.Compared.Differ() {
		t.Errorf("%+v", dec.Compared)
	}
}

// A member without data whose host was worked on cannot come back; a host whose member is
// proved to be stopped is not said to be one that is not, and printed commands work whatever
// the environment has.
func TestMessagesAboutHosts(t *testing.T) {
	d := &coordinator{cfg: &Config{file: "/my files/cluster.yaml", Hosts: []HostConfig{{Member: "m1"}, {Member: "m2"}, {Member: "m3"}}}}
	for _, name := range []string{"m1", "m2", "m3"} {
		d.hosts = append(d.hosts, &participant{HostConfig: HostConfig{Member: name}, state: HostState{Member: name, Stopped: true}, empty: name != "m1"})
	}
	if text := d.unfenceable(&Preview{}); !strings.Contains(text, "On the hosts of m2, m3 etcd does not run, and nothing of a member is in data-dir: correct that in /my files/cluster.yaml") ||
		!strings.HasSuffix(text, ": --declare-dead m2,m3") || strings.Contains(text, "Make") {
		t.Error(text)
	}
	d.hosts[2].state = HostState{Unreachable: "no route"}
	if text := d.unfenceable(&Preview{}); !strings.Contains(text, "Make the other hosts reachable. On the hosts of m2 ") {
		t.Error(text)
	}

	plan := planned("m1", true, 0)
	plan.Fence.DeclaredDead, plan.Members = []string{"m2", "m3"}, []snapshot.Member{{Name: "m2", PeerURLs: []string{"https://b:2380"}}}
	d.decision, d.run = &decision{Plan: plan, Members: []sources.NewMember{{Name: "m1", ClientURLs: []string{"https://a:2379"}}}}, "r"
	d.hosts[1].asides = []host.SetAside{{Aside: restore.Aside{Run: "r", Empty: true}, Done: true}}
	warnings := strings.Join(d.after(&Report{}), "\n")
	if strings.Contains(warnings, "m2 was declared dead") || !strings.Contains(warnings, "m3 was declared dead") {
		t.Error(warnings)
	}
	if next := strings.Join(d.next(), "\n"); !strings.Contains(next, "ETCDCTL_ENDPOINTS=https://a:2379 etcdctl member add m2 --learner --peer-urls=https://b:2380") || strings.Contains(next, "--endpoints") {
		t.Error(next)
	}
}

// TestTimes: a phase that is gone through twice took as long as both, without what
// came between.
func TestTimes(t *testing.T) {
	d := &coordinator{}
	d.took(PhaseQuiesce, 3*time.Second)
	d.took(PhaseRebuild, 7*time.Second)
	d.took(PhaseQuiesce, time.Second)
	require.Equal(t, []PhaseTime{{PhaseQuiesce, 4 * time.Second}, {PhaseRebuild, 7 * time.Second}}, d.phases)
}

// TestAfter: what was found about the candidate still counts once all is done, unless the
// loss says it.
func TestAfter(t *testing.T) {
	p := planned("m1", false, 0)
	p.Warnings, p.Candidates[0].Source = []string{"a warning"}, &sources.Source{}
	p.Candidates[0].Findings = []sources.Finding{{Kind: sources.KindTorn, Text: "its log is torn"}, {Kind: sources.KindForced, Text: "it was forced", Next: "look at it"}}
	d := &coordinator{decision: &decision{Plan: p}}
	require.Equal(t, []string{"m1: it was forced: look at it", "a warning"}, d.after(&Report{}))
}

// TestFound: the newest decision of each run is found, whatever hosts hold; of two of one
// epoch none counts, and that of more hosts is taken. One that cannot be read is an error.
func TestFound(t *testing.T) {
	stored := func(run string, epoch uint64, unproven bool) host.Decision {
		data, err := json.Marshal(&decision{Run: run, Plan: &sources.Plan{}, Unproven: unproven})
		require.NoError(t, err)
		return host.Decision{Run: run, Epoch: epoch, Data: data}
	}
	on := func(all ...host.Decision) *participant { return &participant{decisions: all} }
	d := &coordinator{hosts: []*participant{
		on(),
		on(stored("b", 3, false)),
		on(stored("a", 2, false), stored("b", 4, true)),
		on(stored("a", 2, false), stored("b", 4, true)),
		on(stored("c", 4, false)),
	}}
	if d.newest() != nil {
		t.Error("a decision, and no host was asked")
	}
	require.NoError(t, d.found())
	var runs []string
	for _, k := range d.known {
		runs = append(runs, k.Run)
	}
	if got := strings.Join(runs, " "); got != "a c b" || !d.newest().Unproven || d.epoch != 4 {
		t.Errorf("found %s, %+v, epoch %d", got, d.newest(), d.epoch)
	}
	d.hosts[0] = on(host.Decision{Run: "d", Epoch: 5, Data: []byte(`{"run":"d"}`)})
	require.ErrorContains(t, d.found(), "cannot be read", "one without a plan")
}

// TestFoundStale: what a host holds that was away, or that others had not heard of, is not
// taken for the newest by its epoch alone.
func TestFoundStale(t *testing.T) {
	stored := func(epoch uint64, dec decision) host.Decision {
		dec.Plan = &sources.Plan{}
		data, err := json.Marshal(&dec)
		require.NoError(t, err)
		return host.Decision{Run: dec.Run, Epoch: epoch, Data: data}
	}
	built := map[string]*host.Rebuilt{"m1": {}}
	aside := func(run string) []host.SetAside {
		return []host.SetAside{{Aside: restore.Aside{Run: run}, Done: true}}
	}
	on := func(name string, asides []host.SetAside, all ...host.Decision) *participant {
		return &participant{HostConfig: HostConfig{Member: name}, decisions: all, asides: asides}
	}
	find := func(hosts ...*participant) (*coordinator, error) {
		d := &coordinator{hosts: hosts}
		return d, d.found()
	}
	finished := decision{Run: "a", Built: built, Proved: &proved{}, Finished: true}
	// Of one run: m1 was asked again and again where the others could not be reached.
	d, err := find(on("m1", nil, stored(9, decision{Run: "a", Built: built})), on("m2", nil, stored(4, finished)))
	if err != nil || !d.newest().Finished || d.epoch != 9 {
		t.Errorf("an older one of a higher epoch: %v, %+v", err, d.newest())
	}
	// An undo that began after that is the newer one.
	undoing := finished
	undoing.Undoing = true
	if d, err = find(on("m1", nil, stored(4, finished)), on("m2", nil, stored(5, undoing))); err != nil || !d.newest().Undoing {
		t.Errorf("an undo: %v, %+v", err, d.newest())
	}
	// Of an earlier run, whose host was away since.
	later := decision{Run: "b", Earlier: []string{"a"}, Built: built, Finished: true}
	if d, err = find(on("m1", aside("a"), stored(9, decision{Run: "a", Built: built})), on("m2", aside("b"), stored(5, later))); err != nil || d.newest().Run != "b" || d.epoch != 9 || len(d.known) != 2 {
		t.Errorf("an earlier run of a higher epoch: %v, %+v", err, d.newest())
	}
	// Nobody knew of the other.
	later.Earlier = nil
	m1, m2 := on("m1", aside("a"), stored(9, decision{Run: "a", Built: built})), on("m2", aside("b"), stored(5, later))
	_, err = find(m1, m2)
	require.ErrorContains(t, err, "run b (data is set aside on m2), and run a (on m1)", "two that knew nothing of each other")
	later.Began = time.Now()
	m2.decisions = []host.Decision{stored(5, later)}
	if d, err := find(m1, m2); err != nil || d.newest().Run != "b" {
		t.Errorf("one was begun much later: %v, %+v", err, d.newest())
	}
	later.Began = time.Time{}
	m2.decisions = []host.Decision{stored(5, later)}
	m1.decisions = []host.Decision{stored(9, finished)}
	_, err = find(m1, m2)
	require.NoError(t, err, "both are over")
	// What only was decided is no obstacle.
	if d, err = find(on("m1", nil, stored(1, decision{Run: "a"})), on("m2", nil, stored(1, decision{Run: "b"}))); err != nil || d.newest() == nil {
		t.Errorf("two that did nothing: %v", err)
	}
}

// TestOtherClusterServes: a run whose members were built, and not proved, is not gone on
// with beside a cluster that serves.
func TestOtherClusterServes(t *testing.T) {
	d := &coordinator{cfg: &Config{}, reporter: &reporter{}, run: "a", decision: &decision{Run: "a", Plan: &sources.Plan{}, NewClusterID: 8, Built: map[string]*host.Rebuilt{"m1": {}}}}
	_, err := d.goOn(t.Context(), &Preview{Quorum: Quorum{Serves: true, ClusterID: 9}})
	require.ErrorContains(t, err, "beside it")
}

// Of an undo that failed nobody is asked to undo.
func TestNextAfterAFailedPhase(t *testing.T) {
	for phase, want := range map[Phase]string{
		PhaseStart: "to go on, or --undo", PhaseSurvey: "again once that is mended",
		PhasePutBack: "again to go on", PhaseUndoStart: "The old data is back",
	} {
		text := (&HostsError{Phase: phase, Errs: map[string]error{"m1": errors.New("x")}}).Error()
		if !strings.Contains(text, want) || strings.Contains(text, "--undo") != (phase == PhaseStart) {
			t.Errorf("%s: %s", phase, text)
		}
	}
}

// A new timeline goes on from the one that held the chosen history last: one that has not
// ended before one that has, and the newest of these, however far each was archived.
func TestBranchOf(t *testing.T) {
	timeline := func(cluster uint64, n int) repository.TimelineID {
		return repository.TimelineID{ClusterID: cluster, N: n}
	}
	p, f := planned("m1", true, 0), &sources.Findings{}
	f.Archives = []sources.Archive{{Timeline: timeline(7, 1)}, {Timeline: timeline(7, 2)}, {Timeline: timeline(7, 3), Superseded: &repository.Superseded{}}, {Timeline: timeline(7, 4), Superseded: &repository.Superseded{}}}
	for _, c := range []struct {
		held []repository.TimelineID
		want repository.TimelineID
	}{
		{nil, repository.TimelineID{}},
		{[]repository.TimelineID{timeline(7, 2), timeline(7, 1)}, timeline(7, 2)},
		{[]repository.TimelineID{timeline(7, 4), timeline(7, 2), timeline(7, 1)}, timeline(7, 2)},
		{[]repository.TimelineID{timeline(7, 4), timeline(7, 3)}, timeline(7, 4)},
		{[]repository.TimelineID{timeline(8, 1)}, repository.TimelineID{}},
	} {
		p.Candidates[0].History = 2
		p.Histories = []sources.History{{Number: 1, Timelines: []repository.TimelineID{timeline(7, 1)}}, {Number: 2, Timelines: c.held}}
		for range 2 {
			if b := branchOf(p, f); b != (repository.Branch{Timeline: c.want}) {
				t.Errorf("of %v: %+v", c.held, b)
			}
			slices.Reverse(c.held)
		}
	}
	p.Candidates[0].Source.Base = sources.Base{Timeline: timeline(7, 1), Backup: "b"}
	if b := branchOf(p, f); b != (repository.Branch{Timeline: timeline(7, 1), Backup: "b"}) {
		t.Errorf("of a backup: %+v", b)
	}
}

// A host whose disk hangs answers, and never lists its files: the others are not kept waiting.
func TestPreflight_FilesAreNotListed_Fails(t *testing.T) {
	old := askTimeout
	askTimeout = 5 * time.Second // of a loaded machine
	defer func() { askTimeout = old }()
	program := filepath.Join(t.TempDir(), "host")
	require.NoError(t, storetest.WriteProgram(program, []byte(`#!/bin/sh
echo '{"requorum":"test"}'
while read -r line; do
	id=${line#*:} id=${id%%,*}
	case $line in *'"configure"'* | *'"observe"'*) echo '{"id":'$id',"done":true,"value":{"stopped":true}}' ;; esac
done
`), 0o700))
	c, err := ParseConfig([]byte(`
cluster: c
hosts:
  - {member: m1, run: `+program+`, peer-urls: ['http://127.0.0.1:1'], client-urls: ['http://127.0.0.1:1'], data-dir: /nowhere, kind: systemd, systemd: {unit: etcd.service}}
`), "cluster.yaml")
	require.NoError(t, err)
	_, err = Preflight(t.Context(), Request{Config: c, Version: "test", patience: time.Millisecond})
	require.ErrorContains(t, err, "its files are not listed within")
	require.ErrorContains(t, err, "--declare-dead m1")
}
