package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// readNow begins the question that is asked once all members are stopped and read.
const readNow = "All old members are stopped"

// untouched fails the test where a host's data was set aside, or anything was
// decided.
func (s *site) untouched(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		if entries, err := os.ReadDir(h.dataDir()); err == nil && len(entries) != 1 {
			t.Errorf("%s: %v", h.name, entries)
		}
		_, err := os.Stat(filepath.Join(h.dir, "state", "state.json"))
		require.ErrorIs(t, err, os.ErrNotExist, "%s remembers something", h.name)
	}
}

// Promise 2: a cluster that serves is left alone. A member without a quorum is
// stopped and read, and the plan is made of it.
func TestServesThenFenced(t *testing.T) {
	if testing.Short() {
		t.Skip("TestFenceOpen has the fence; this takes a recovery more")
	}
	t.Parallel()
	s := newSite(t, "3.5", 3)
	want := s.fill(t, "a", 20)
	e := &heard{t: t}
	var serves *QuorumError
	if _, err := Run(t.Context(), s.request(e)); !errors.As(err, &serves) || !strings.Contains(err.Error(), "member add") {
		t.Fatalf("with a quorum: %v", err)
	}
	s.killAll(s.hosts[0]) // perhaps the leader
	if p, err := Preflight(t.Context(), s.request(nil)); p == nil || !p.Quorum.Serves || len(p.Blockers) == 0 || len(p.Unsurveyed) != 2 {
		t.Fatalf("with two of three: %s, %v", shown(p), err)
	}
	s.election = shortElection
	s.untouched(t)
	s.killAll(s.hosts[1])
	// m3 runs and cannot serve: of the others it is proven already.
	p, err := Preflight(t.Context(), s.request(nil))
	if err != nil || !slices.Equal(p.Unsurveyed, []string{"m3"}) || !p.Plan.Proven || len(p.Blockers) > 0 {
		t.Fatalf("%s, %v", shown(p), err)
	}
	r, err := Run(t.Context(), s.request(e))
	require.NoError(t, err)
	if !r.Proven || len(e.questions) != 1 || len(r.Plan.Fence.Stopped) != 3 {
		t.Errorf("asked %+v, %+v", e.questions, r.Plan.Fence)
	}
	s.check(t, want, s.hosts...)
}

// Promise 4: what comes out when the members are stopped is asked again where it is
// worse; a no starts again what was stopped.
func TestDeclinedAfterTheFence(t *testing.T) {
	if testing.Short() {
		t.Skip("TestFenceOpen has the fence; this takes a recovery more")
	}
	t.Parallel()
	s := newSite(t, "3.6", 3)
	s.election = shortElection
	want := s.fill(t, "a", 20)
	s.killAll(s.hosts[0], s.hosts[1])
	for _, h := range s.hosts[:2] { // their disks are lost
		require.NoError(t, os.RemoveAll(h.dataDir()))
	}
	req := s.request(nil)
	req.DeclareDead = []string{"m1", "m2"}
	e := &heard{t: t, answer: func(q Question) (bool, error) { return !strings.HasPrefix(q.Text, readNow), nil }}
	req.Events = e
	_, err := Run(t.Context(), req)
	require.ErrorIs(t, err, ErrDeclined)
	if len(e.questions) != 2 || e.questions[0].Type != "" || !strings.HasPrefix(e.questions[1].Text, readNow) || e.questions[1].Type != "production" {
		t.Fatalf("asked %+v", e.questions)
	}
	p, err := Preflight(t.Context(), s.request(nil))
	if p == nil || !p.Hosts[2].Runs || p.Hosts[0].Runs || p.Run != "" {
		t.Fatalf("%s, %v", shown(p), err)
	}
	// Agreed to: unproven, raised, and all that the survivor had.
	e.answer = nil
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	if r.Proven || r.RevisionAfter < r.Plan.Bump.HighestKnown+1_000_000_000 || r.RevisionAfter <= r.RevisionBefore {
		t.Errorf("proven %t, revision %d to %d", r.Proven, r.RevisionBefore, r.RevisionAfter)
	}
	s.check(t, want, s.hosts...)
	// The new cluster takes a write: an undo warns of it.
	s.fill(t, "b", 1)
	e.answer = func(q Question) (bool, error) { return false, nil }
	_, err = Undo(t.Context(), req)
	require.ErrorIs(t, err, ErrDeclined)
	if q := e.questions[len(e.questions)-1]; !strings.HasPrefix(q.Text, "Take run ") || q.Type != "production" || len(q.Reasons) != 1 {
		t.Errorf("asked %+v", q)
	}
	s.check(t, want, s.hosts...)
}

// Promise 2: what cannot be reached has to be declared dead, and its member put
// elsewhere, before anything is changed. Other options than those that were decided
// are refused in the middle.
func TestHostGone(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	gone := s.hosts[2]
	gone.end()
	e := &heard{t: t}
	req := s.request(e)
	refused := func(part string) {
		t.Helper()
		var request *restore.RequestError
		var o *BlockedError
		if _, err := Run(t.Context(), req); !errors.As(err, &request) || !errors.As(err, &o) || !strings.Contains(err.Error(), part) {
			t.Fatalf("%v: want %q, and that members have to be named", err, part)
		}
		s.untouched(t)
	}
	refused("--declare-dead m3")
	req.DeclareDead = []string{"m3"}
	refused("--members 2")
	req.Change = sources.MembersRequest{Count: 2}
	fired := false
	e.begun = func(p Phase, host string) {
		if p == PhaseSetAside && host == "m2" {
			fired = true
			s.hosts[1].end()
		}
	}
	if _, err := Run(t.Context(), req); err == nil || !fired {
		t.Fatal(err)
	}
	e.begun = nil
	s.hosts[1].control(t)
	var against *restore.RequestError
	other := req
	other.Change = sources.MembersRequest{Count: 1}
	other.Source = "m2"
	if _, err := Run(t.Context(), other); !errors.As(err, &against) || !strings.Contains(err.Error(), "--members and --replace are now") || !strings.Contains(err.Error(), "--source is now m2") {
		t.Fatalf("other options: %v", err)
	}
	r, err := Run(t.Context(), s.request(e)) // without options: as decided
	require.NoError(t, err)
	if len(r.Members) != 2 || !slices.ContainsFunc(r.Next, func(n string) bool { return strings.Contains(n, "member add m3 --learner") }) || len(e.questions) != 1 {
		t.Errorf("%+v", r)
	}
	s.check(t, want, s.hosts[:2]...)
}

// A host is gone for good: a new one gets its member, under another name and
// address, and the state from the survivors. Its flags know nothing of it (etcd is started
// with the old --initial-cluster), and what they should be is reported.
func TestReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("cmd/requorum/recovertest replaces hosts")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	s.hosts[2].end()
	m4 := s.newHost(t, "m4", 2)
	e := &heard{t: t}
	req := s.request(e)
	req.DeclareDead = []string{"m3"}
	req.Change.Replace = []sources.Replacement{{Old: "m3", Name: "m4", PeerURLs: []string{m4.peers}}}
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	if !r.Proven || len(r.Members) != 3 || len(r.Proof.Missing) > 0 || strings.Count(strings.Join(r.Next, "\n"), "m4="+m4.peers+" --initial-cluster-state=existing") != 3 {
		t.Errorf("%s", shown(r))
	}
	brought := false
	for _, b := range r.Hosts[2].Brought {
		brought = brought || b.From == s.hosts[0].name || b.From == s.hosts[1].name
	}
	if !brought {
		t.Errorf("brought: %+v", r.Hosts[2].Brought)
	}
	s.check(t, want, s.hosts[0], s.hosts[1], m4)
	u, err := Undo(t.Context(), s.request(e))
	require.NoError(t, err)
	if u.Hosts[2].Started || !u.Hosts[0].Started {
		t.Errorf("%s", shown(u))
	}
	s.waitReady(t, s.hosts[:2]...)
	s.check(t, want, s.hosts[:2]...)
}

// Promise 2: no recovery goes on while the old members that could come back are a
// majority, which may be known only once a member is stopped and read. Undone, what
// ran runs again.
func TestFenceOpen(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 3)
	s.election = shortElection
	want := s.fill(t, "a", 20)
	s.killAll(s.hosts[1:]...)
	s.config.Hosts = s.config.Hosts[:1] // the others are not named
	e := &heard{t: t}
	var open *restore.RequestError
	if _, err := Run(t.Context(), s.request(e)); !errors.As(err, &open) || !strings.Contains(err.Error(), "--declare-dead m") {
		t.Fatalf("%v", err)
	}
	if e.did("set-aside m1") {
		t.Error("data was set aside")
	}
	_, err := Undo(t.Context(), s.request(e))
	require.NoError(t, err)
	if p, err := Preflight(t.Context(), s.request(nil)); p == nil || !p.Hosts[0].Runs {
		t.Fatalf("after the undo: %s, %v", shown(p), err)
	}
	// Started anew without a quorum, it answers nobody: that cannot be distinguished from a
	// wrong client URL.
	req := s.request(e)
	var unknown *QuorumError
	if _, err := Run(t.Context(), req); !errors.As(err, &unknown) || unknown.Quorum.Unknown == "" {
		t.Fatalf("%v", err)
	}
	req.Force = true
	if _, err := Run(t.Context(), req); !errors.As(err, &open) || !strings.Contains(err.Error(), "does not go on") {
		t.Fatalf("%v", err)
	}
	req.DeclareDead = []string{"m2", "m3"}
	req.Change.Names = []string{"m1"}
	r, err := Run(t.Context(), req) // the same run
	if err != nil || !r.Continued || r.Proven || len(r.Members) != 1 {
		t.Fatalf("%s, %v", shown(r), err)
	}
	if q := e.questions[len(e.questions)-1]; !strings.HasPrefix(q.Text, readNow) || q.Type != "production" {
		t.Errorf("asked %+v", q)
	}
	s.check(t, want, s.hosts[0])
}

// TestElectionIsWaitedFor: a member that answers is given time to elect a leader, unless the
// hosts have proved that too few of the others run: not if one cannot be reached, or is not
// in the cluster file.
func TestElectionIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 3)
	s.killAll(s.hosts[1:]...)
	all := s.config.Hosts
	for _, c := range []struct {
		what     string
		given    func()
		election time.Duration
		waits    bool
	}{
		{"two of three are proved to be stopped", func() {}, 2 * time.Minute, false}, // however slow the machine is
		{"m3 is not in the cluster file", func() { s.config.Hosts = all[:2] }, shortElection, true},
		{"m2 cannot be reached", func() { s.config.Hosts = all; s.hosts[1].end() }, shortElection, true},
	} {
		c.given()
		req := s.request(nil)
		req.election = c.election
		began := time.Now()
		p, err := Preflight(t.Context(), req)
		took := time.Since(began)
		if err != nil || p.Quorum.Serves || !p.Quorum.Answered || p.Quorum.Unknown != "" {
			t.Fatalf("%s: %s, %v", c.what, shown(p), err)
		}
		if took >= c.election != c.waits {
			t.Errorf("%s: looked at for %s, waited %t", c.what, took, !c.waits)
		}
	}
}

// One coordinator at a time, on one machine.
func TestLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := host.Lock(path)
	require.NoError(t, err)
	defer f.Close()
	req := Request{Config: &Config{file: path}, Events: &heard{t: t}}
	_, err = Run(t.Context(), req)
	require.ErrorIs(t, err, host.ErrBusy)
	_, err = Undo(t.Context(), req)
	require.ErrorIs(t, err, host.ErrBusy)
}

// A cluster file names a repository of another cluster: nothing is begun, unless the source is
// named. One that holds the cluster's own, too, is right.
func TestRepositoryOfAnotherCluster(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "backups")
	other := newSite(t, "3.6", 1)
	other.backup(t, url)
	s := newSite(t, "3.6", 1, url)
	want := s.fill(t, "a", 5)
	s.killAll()
	req := s.request(&heard{t: t})
	var blocked *BlockedError
	if _, err := Run(t.Context(), req); !errors.As(err, &blocked) || len(blocked.Blockers) != 1 || !strings.Contains(err.Error(), "the data of m1 in "+s.hosts[0].dataDir()+" is of cluster ") || !strings.Contains(err.Error(), "--source") {
		t.Fatalf("%v", err)
	}
	s.untouched(t)
	p, err := Preflight(t.Context(), req)
	if err != nil || !slices.Equal(p.Blockers, blocked.Blockers) {
		t.Errorf("a dry run: %v, %q", err, p.Blockers)
	}
	req.Source = "m1"
	if p, err := Preflight(t.Context(), req); err != nil || len(p.Blockers) > 0 {
		t.Errorf("named: %v, %q", err, p.Blockers)
	}
	req.Source, s.config.Repositories = "", []string{url, "file://" + filepath.Join(t.TempDir(), "own")}
	s.hosts[0].run(t)
	s.waitReady(t, s.hosts...)
	s.backup(t, s.config.Repositories[1])
	s.killAll()
	if p, err := Preflight(t.Context(), req); err != nil || len(p.Blockers) > 0 {
		t.Errorf("with a repository of its own: %v, %q", err, p.Blockers)
	}
	s.config.Repositories = s.config.Repositories[1:]
	_, err = Run(t.Context(), req)
	require.NoError(t, err)
	s.check(t, want, s.hosts...)
}
