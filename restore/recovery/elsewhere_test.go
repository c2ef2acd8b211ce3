package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// TestContinuedElsewhere: the machine where a recovery was begun is lost, again and again,
// wherever it had got to, and one on another machine that has the cluster file goes on
// with it by the same command, without asking again, to the same end. Nothing is built or
// proved twice, and clients run again. A lease that ended meanwhile is no fault. An undo
// from one more machine, ended again and again as well, takes all of it back; until it has,
// nobody goes on with the recovery.
func TestContinuedElsewhere(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "repo")
	s := newSite(t, "3.6", 3, url)
	want := s.fill(t, "a", 20)
	old := s.clusterID(t, s.hosts[0])
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	s.backup(t, url, key.Recipient())
	s.config.Recipients = []string{key.Recipient().String()}
	s.addClients(t)
	s.killAll()
	e := &heard{t: t}
	for i, at := range []struct {
		phase Phase
		host  string
	}{{PhaseQuiesce, "m1"}, {PhaseFence, "m2"}, {PhaseSetAside, "m2"}, {PhaseRebuild, "m3"}, {PhaseStart, "m2"}, {PhaseProve, ""}, {PhaseResume, "m2"}} {
		s.endAt(t, e, fmt.Sprint("lost", i), at.phase, at.host)
		if at.phase == PhaseProve {
			s.waitReady(t, s.hosts...)
		}
	}
	p, err := Preflight(t.Context(), s.onMachine(t, nil, "looks"))
	if err != nil || p.Reached != PhaseResume || len(p.Blockers) > 0 {
		t.Errorf("a dry run: %v, %s", err, shown(p))
	}
	r, err := Run(t.Context(), s.onMachine(t, e, "last"))
	require.NoError(t, err)
	if !r.Proven || !r.Continued || len(r.Members) != 3 || len(r.Incomplete) > 0 || len(r.Lineage) != 1 || len(r.Lineage[0].Superseded) == 0 || len(r.Snapshots) != 1 || len(e.questions) != 1 {
		t.Errorf("asked %d times, %s", len(e.questions), shown(r))
	}
	for _, h := range r.Hosts {
		if h.Aside == nil || len(h.Aside.Paths()) == 0 || !strings.Contains(strings.Join(r.Next, "\n"), h.Member+": the old data is in "+h.Aside.Folder) {
			t.Errorf("where the old data of %s is: %+v, %q", h.Member, h.Aside, r.Next)
		}
	}
	// What a host had done when the machine was lost was not said there.
	for step, least := range map[string]int{"survey m1": 1, "set-aside m1": 0, "rebuild m1": 0, "prove ": 1} {
		if n := strings.Count(strings.Join(e.steps, "\n")+"\n", step+"\n"); n > 1 || n < least {
			t.Errorf("%q was done %d times", step, n)
		}
	}
	s.check(t, want, s.hosts...)
	s.clientsRun(t)
	for _, at := range []struct {
		phase Phase
		host  string
	}{{PhaseUndoStop, "m2"}, {PhasePutBack, "m3"}, {PhaseUndoStart, "m1"}, {PhaseUndoResume, "m2"}} {
		e.endAt(t, at.phase, at.host, func(ctx context.Context) error { _, err := Undo(ctx, s.onMachine(t, e, "undoes")); return err })
		_, err = Run(t.Context(), s.onMachine(t, e, "last"))
		require.ErrorContains(t, err, "is being undone", at.phase)
	}
	_, err = Undo(t.Context(), s.onMachine(t, e, "undoes"))
	require.NoError(t, err)
	require.Len(t, e.questions, 2)
	s.waitReady(t, s.hosts...)
	s.check(t, want, s.hosts...)
	s.clientsRun(t)
	if now := s.clusterID(t, s.hosts[1]); now != old {
		t.Errorf("cluster %x after the undo, was %x", now, old)
	}
	_, err = Undo(t.Context(), s.request(e))
	require.ErrorIs(t, err, ErrNothingToUndo, "undone twice")
}

func (s *site) clientsRun(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		if !h.clientRuns() {
			t.Errorf("the client of %s does not run", h.name)
		}
	}
}

// refusedAs fails the test where an error is not a host's that has heard of another
// coordinator since.
func refusedAs(t *testing.T, err error, phase Phase) {
	t.Helper()
	var failed *HostsError
	if !errors.As(err, &failed) || failed.Phase != phase || !isRefusal(err, host.Outdated) || !strings.Contains(err.Error(), "has gone on") {
		t.Errorf("it went on at %s, or failed otherwise: %v", phase, err)
	}
}

// TestTwoCoordinators: a coordinator that was not lost is refused by the hosts from where
// another one goes on, in the middle and at the question, and does no harm.
func TestTwoCoordinators(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	s.addClients(t)
	first, other := &heard{t: t}, &heard{t: t}
	// While it asks, another one decides, and is ended before it did anything.
	first.answer = func(Question) (bool, error) {
		s.endAt(t, other, "other", PhaseQuiesce, "m1")
		return true, nil
	}
	_, err := Run(t.Context(), s.request(first))
	refusedAs(t, err, PhaseDecide)
	s.untouchedData(t)
	// Both have found the same decision, and would go on with it as it is.
	first.answer = nil
	first.noted = func(text string) {
		if strings.HasPrefix(text, "Going on with") {
			first.noted = nil
			s.endAt(t, other, "other", PhaseFence, "m2")
		}
	}
	_, err = Run(t.Context(), s.request(first))
	refusedAs(t, err, PhaseDecide)
	// While it is about to build, another one comes to the end of the same run.
	var r *Report
	first.begun = func(p Phase, name string) {
		if p == PhaseRebuild && name == "m1" && r == nil {
			if r, err = Run(t.Context(), s.onMachine(t, other, "other")); err != nil {
				t.Error(err)
			}
		}
	}
	_, refused := Run(t.Context(), s.request(first))
	refusedAs(t, refused, PhaseRebuild)
	if r == nil || !r.Proven || !r.Continued || len(first.questions) != 1 || len(other.questions) != 1 {
		t.Errorf("asked %d and %d times, %s", len(first.questions), len(other.questions), shown(r))
	}
	s.check(t, want, s.hosts...)
	s.clientsRun(t)
	var serves *QuorumError
	if _, err := Run(t.Context(), s.request(first)); !errors.As(err, &serves) {
		t.Errorf("again: %v", err)
	}
	// The cluster file does not name m3: what was built there would serve on.
	without := s.onMachine(t, first, "other")
	without.Config.Hosts = without.Config.Hosts[:2]
	_, err = Undo(t.Context(), without)
	require.ErrorContains(t, err, "--declare-dead m3", "undone without a host")
	// The state file of m3 is lost: nobody would stop what was built there.
	s.hosts[2].end()
	require.NoError(t, os.RemoveAll(s.hosts[2].cfg.StateDir))
	s.hosts[2].control(t)
	_, err = Undo(t.Context(), s.request(first))
	require.ErrorContains(t, err, "built on m3", "undone with a lost state file")
	s.check(t, want, s.hosts...)
	s.killAll(s.hosts[2])
	u, err := Undo(t.Context(), s.request(first))
	if err != nil || u.Hosts[2].Started {
		t.Fatalf("%v, %s", err, shown(u))
	}
	s.waitReady(t, s.hosts[:2]...)
	s.check(t, want, s.hosts[:2]...)
}

// TestServesAgain: a recovery was ended before anything was set aside, and the old cluster
// serves again: what was stopped is started, and nothing else is done. All hosts have to
// say that it got no further.
func TestServesAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("TestContinuedElsewhere is ended later; this takes a cluster more")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	s.addClients(t)
	e := &heard{t: t}
	s.endAt(t, e, "lost", PhaseFence, "m1")
	for _, h := range s.hosts { // a stop that is under way would end what is started now
		s.asRun(t, h, func(d *coordinator, at *participant) error { _, err := at.client.Stop(t.Context()); return err })
		h.run(t)
	}
	s.waitReady(t, s.hosts...)
	req := s.onMachine(t, e, "other")
	s.hosts[2].end() // there the run may have got further
	var away *HostsError
	if _, err := Run(t.Context(), req); !errors.As(err, &away) || len(e.questions) > 1 || away.Errs["m3"] == nil {
		t.Fatalf("with a host away: %v, asked %s", err, shown(e.questions))
	}
	s.hosts[2].control(t)
	e.answer = func(Question) (bool, error) { // another coordinator goes on
		s.hosts[0].kill()
		s.asRun(t, s.hosts[0], func(d *coordinator, at *participant) error { _, err := at.client.SetAside(t.Context()); return err })
		return true, nil
	}
	if _, err := Run(t.Context(), req); err == nil || !strings.Contains(err.Error(), "gone on meanwhile") || e.did(string(PhaseUndoResume)+" m3") {
		t.Errorf("it had gone on meanwhile: %v", err)
	}
	s.asRun(t, s.hosts[0], func(d *coordinator, at *participant) error { _, err := at.client.Undo(t.Context()); return err })
	s.hosts[0].run(t)
	s.waitReady(t, s.hosts...)
	e.answer, e.questions = nil, nil
	// What runs is not read, so that nothing is found to recover from.
	if p, err := Preflight(t.Context(), s.onMachine(t, nil, "looks")); !sources.AboutSource(err) || !strings.Contains(strings.Join(p.Warnings, " "), "is given up") {
		t.Errorf("a dry run: %v, %s", err, shown(p))
	}
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	if !r.GivenUp || len(r.Hosts) != 3 || len(e.questions) != 1 {
		t.Errorf("%s, it did %v", shown(r), e.steps)
	}
	s.untouchedData(t)
	s.check(t, want, s.hosts...)
	s.clientsRun(t)
}

// asRun does something on a host in the name of the run under way, once nothing is under
// way there that its coordinator had begun.
func (s *site) asRun(t *testing.T, h *testHost, do func(*coordinator, *participant) error) {
	t.Helper()
	d, err := newCoordinator(s.onMachine(t, nil, "asks"), false)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.close()) }()
	require.NoError(t, d.states(t.Context()))
	require.NoError(t, d.found())
	at := d.host(h.name)
	d.id = at.decisions[len(at.decisions)-1].By
	d.setRun(d.newest().Run, d.newest())
	_, err = act(t.Context(), d, PhaseResume, at, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(d, at) })
	require.NoError(t, err)
}

// untouchedData fails the test where a host's data was set aside.
func (s *site) untouchedData(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		if entries, err := os.ReadDir(h.dataDir()); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v, %v", h.name, entries, err)
		}
	}
}
