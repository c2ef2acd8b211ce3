package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
)

// Promise 2: a host that gets no member has nothing left that could start, as a
// reboot would. Promise 3: a recovered cluster is recovered again, from another
// machine, with all that it took since; and both are undone, from two more, the last
// one first.
func TestRecoveredTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("TestRecoverAll recovers once; this takes a recovery more")
	}
	t.Parallel()
	s := newSite(t, "3.6", 3)
	want := s.fill(t, "a", 20)
	old := s.clusterID(t, s.hosts[0])
	s.killAll()
	e := &heard{t: t}
	req := s.request(e)
	req.Change = sources.MembersRequest{Count: 1}
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	next := strings.Join(r.Next, "\n")
	for i, h := range r.Hosts {
		if h.Aside == nil || h.Aside.Folder == "" || !strings.Contains(next, h.Aside.Folder) || h.Left != (i > 0) {
			t.Errorf("%+v\n%s", h, next)
		}
	}
	if !strings.Contains(next, "remove "+filepath.Join(s.hosts[1].dataDir(), "member")) {
		t.Errorf("the placeholder is not named: %s", next)
	}
	for _, h := range s.hosts[1:] { // a reboot
		h.run(t)
	}
	for _, h := range s.hosts[1:] {
		if !h.ends() {
			t.Errorf("%s runs, of data that was left", h.name)
		}
	}
	for k, v := range s.fillAt(t, "b", s.hosts[0]) {
		want[k] = v
	}
	s.killAll()
	r, err = Run(t.Context(), s.onMachine(t, e, "second"))
	require.NoError(t, err)
	if len(r.Members) != 1 || !r.Proven || r.Continued {
		t.Errorf("%s", shown(r))
	}
	s.check(t, want, s.hosts[0])
	u, err := Undo(t.Context(), s.onMachine(t, e, "third"))
	require.NoError(t, err)
	if u.Run != r.Run {
		t.Errorf("run %s was undone before the last one, %s", u.Run, r.Run)
	}
	s.waitReady(t, s.hosts[0])
	s.check(t, want, s.hosts[0])
	_, err = Undo(t.Context(), s.onMachine(t, e, "fourth"))
	require.NoError(t, err)
	s.waitReady(t, s.hosts...)
	s.check(t, map[string]string{"a/0000": want["a/0000"]}, s.hosts...)
	if now := s.clusterID(t, s.hosts[2]); now != old {
		t.Errorf("cluster %x after both undos, was %x", now, old)
	}
}

// A run that did not end on one host is not gone on with once the cluster that it made is
// lost, with what that took since: it is recovered anew.
func TestLostBeforeAllWasDone(t *testing.T) {
	if testing.Short() {
		t.Skip("TestRecoverAll recovers once; this takes a recovery more")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	e := &heard{t: t}
	e.begun = func(p Phase, host string) {
		if p == PhaseResume && host == "m3" {
			s.hosts[2].end()
		}
	}
	req := s.request(e)
	req.Change = sources.MembersRequest{Count: 2}
	if r, err := Run(t.Context(), req); err == nil || r == nil {
		t.Fatal("it was complete")
	}
	e.begun = nil
	for k, v := range s.fillAt(t, "b", s.hosts[:2]...) {
		want[k] = v
	}
	s.killAll()
	s.hosts[2].control(t)
	again := s.onMachine(t, e, "other")
	r, err := Run(t.Context(), again)
	var need *sources.NeedSourceError
	if errors.As(err, &need) {
		again.Source = "m1"
		again.DeclareDead = []string{}
		r, err = Run(t.Context(), again)
	}
	require.NoError(t, err)
	s.check(t, want, s.hosts[:2]...)
	if len(r.Members) != 2 || r.Continued {
		t.Errorf("%s", shown(r))
	}
}

// Promise 2: while the operator thinks, a host comes back, and the cluster serves.
func TestQuorumComesBackAtThePrompt(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	e := &heard{t: t, answer: func(Question) (bool, error) {
		for _, h := range s.hosts[:2] {
			h.run(t)
		}
		s.waitReady(t, s.hosts[:2]...)
		time.Sleep(staleAfter)
		return true, nil
	}}
	var serves *QuorumError
	if _, err := Run(t.Context(), s.request(e)); !errors.As(err, &serves) || !serves.Quorum.Serves {
		t.Fatalf("%v", err)
	}
	s.untouched(t)
	s.check(t, want, s.hosts[:2]...)
}

// A host dies when others have built by the plan: declared dead now, the run goes on
// to its end, without an undo.
func TestDeclaredDeadAfterTheRebuild(t *testing.T) {
	if testing.Short() {
		t.Skip("TestHostGone has a host that is gone; this takes a recovery more")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	e := &heard{t: t}
	e.begun = func(p Phase, host string) {
		if p == PhaseRebuild && host == "m2" {
			s.hosts[1].end()
			s.hosts[2].end()
		}
	}
	req := s.request(e)
	req.Change = sources.MembersRequest{Names: []string{"m1", "m2"}}
	var failed *HostsError
	if _, err := Run(t.Context(), req); !errors.As(err, &failed) || failed.Phase != PhaseRebuild {
		t.Fatalf("%v", err)
	}
	e.begun = nil
	s.hosts[1].control(t)
	_, err := Run(t.Context(), req)
	require.ErrorContains(t, err, "--declare-dead m3")
	req.DeclareDead = []string{"m3"}
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	built := 0
	for _, step := range e.steps {
		if step == "rebuild m1" {
			built++
		}
	}
	if !r.Proven || built != 1 {
		t.Errorf("m1 was built %d times; %s", built, shown(r.Plan))
	}
	s.check(t, want, s.hosts[:2]...)
}

// app is a program that runs beside a host's member.
type app struct{ start, stop, status []string }

func (c app) run(t *testing.T, args []string) bool {
	t.Helper()
	err := exec.Command(args[0], args[1:]...).Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	return err == nil
}

// addClient gives the host a client, which runs.
func (h *testHost) addClient(t *testing.T) app {
	t.Helper()
	name := fmt.Sprintf("rq-app-%d", os.Getpid())
	program, pid := filepath.Join(h.dir, name), filepath.Join(h.dir, "client-pid")
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		var data []byte
		if data, err = os.ReadFile(sleep); err == nil {
			err = storetest.WriteProgram(program, data, 0o700)
		}
	}
	require.NoError(t, err)
	sh := func(text string) []string { return []string{"/bin/sh", "-c", text} }
	c := app{
		start:  sh("setsid " + program + " 300 </dev/null >/dev/null 2>&1 & echo $! >" + pid),
		stop:   sh("kill -9 $(cat " + pid + "); rm " + pid),
		status: sh("test -e " + pid),
	}
	h.end()
	h.cfg.Clients = []supervisor.ClientConfig{{
		Name: "app", Process: name,
		ServiceConfig: supervisor.ServiceConfig{
			Kind: supervisor.Command, Command: supervisor.CommandMember{Start: c.start, Stop: c.stop, Status: c.status},
			StopTimeout: yamlfile.Duration(10 * time.Second), StartTimeout: yamlfile.Duration(10 * time.Second),
		},
	}}
	c.run(t, c.start)
	t.Cleanup(func() { c.run(t, c.stop) })
	h.control(t)
	return c
}

// Promise 5: a client that a reboot started in the middle is stopped again before
// any new member is started.
func TestClientStartedInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 1)
	want := s.fill(t, "a", 5)
	h := s.hosts[0]
	app := h.addClient(t)
	s.killAll()
	e := &heard{t: t}
	seen := false
	e.begun = func(p Phase, host string) {
		switch {
		case p == PhaseRebuild && host == "m1":
			if app.run(t, app.status) {
				t.Error("the client was not stopped")
			}
			app.run(t, app.start) // by a reboot
		case p == PhaseStart && host == "m1":
			seen = true
			if app.run(t, app.status) {
				t.Error("a client runs, and a new member is started")
			}
		}
	}
	if _, err := Run(t.Context(), s.request(e)); err != nil || !seen {
		t.Fatal(err)
	}
	if !app.run(t, app.status) {
		t.Error("the client was not resumed")
	}
	s.check(t, want, h)
}

// A member that its supervisor starts over and over, in vain, cannot be read until it
// is fenced: it counts as one that runs.
func TestStartedWhileRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 3)
	s.election = shortElection // m2 alone elects nobody
	want := s.fill(t, "a", 20)
	s.killAll()
	var unsurveyed []string
	e := &heard{t: t, answer: func(q Question) (bool, error) {
		unsurveyed = slices.Clone(q.Preview.Unsurveyed)
		return true, nil
	}}
	fired := false
	e.begun = func(p Phase, host string) {
		if p != PhaseSurvey || host != "m2" || fired {
			return
		}
		fired = true
		s.hosts[1].run(t)
		for began := time.Now(); restore.CheckMemberIdle(s.hosts[1].dataDir(), "") == nil; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 2*time.Minute {
				t.Error("it was not started")
				return
			}
		}
	}
	r, err := Run(t.Context(), s.request(e))
	if err != nil || !fired {
		t.Fatal(err)
	}
	if !slices.Equal(unsurveyed, []string{"m2"}) || !r.Proven || len(r.Plan.Fence.Stopped) != 3 {
		t.Errorf("%v, %s", unsurveyed, shown(r.Plan.Fence))
	}
	s.check(t, want, s.hosts...)
}

// What a run did on a host that is at hand is not passed by in an undo because its
// member was declared dead: it may be the new host of that name.
func TestUndoPassesByWhatIsGivenNow(t *testing.T) {
	if testing.Short() {
		t.Skip("TestUndoFromTheMiddle takes a recovery back; this takes a recovery more")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	lost := s.hosts[2]
	lost.end()
	h := s.newHost(t, "m3", 2) // another one of the same name
	e := &heard{t: t}
	req := s.request(e)
	req.DeclareDead = []string{"m3"}
	req.Change.Replace = []sources.Replacement{{Old: "m3", PeerURLs: []string{h.peers}}}
	r, err := Run(t.Context(), req)
	if err != nil || !r.Proven || len(r.Proof.Missing) > 0 {
		t.Fatalf("%s, %v", shown(r), err)
	}
	s.check(t, want, s.hosts[0], s.hosts[1], h)
	h.end()
	_, err = Undo(t.Context(), s.request(e))
	require.ErrorContains(t, err, "--declare-dead m3")
	s.check(t, want, s.hosts[0], s.hosts[1], h) // nothing was touched
	h.control(t)
	_, err = Undo(t.Context(), s.request(e))
	require.NoError(t, err)
	s.waitReady(t, s.hosts[:2]...)
	s.check(t, want, s.hosts[:2]...)
}

// Hosts are rebooted when their members are built and none was started as yet: their
// supervisors start a majority of the new cluster, and it takes writes. An undo warns
// of them, and the run keeps them.
func TestRebootBeforeTheStart(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := &heard{t: t}
	e.begun = func(p Phase, _ string) {
		if p == PhaseQuiesce && e.did("rebuild m1") {
			cancel()
		}
	}
	if _, err := Run(ctx, s.request(e)); err == nil || e.did("start m1") {
		t.Fatalf("%v, %v", err, e.steps)
	}
	e.begun = nil
	for _, h := range s.hosts[:2] {
		h.run(t)
	}
	s.waitReady(t, s.hosts[:2]...)
	for k, v := range s.fillAt(t, "b", s.hosts[:2]...) {
		want[k] = v
	}
	e.answer = func(Question) (bool, error) { return false, nil }
	_, err := Undo(t.Context(), s.request(e))
	require.ErrorIs(t, err, ErrDeclined)
	if q := e.questions[len(e.questions)-1]; !strings.HasPrefix(q.Text, "Take run ") || q.Type != "production" || len(q.Reasons) != 1 {
		t.Errorf("asked %+v", q)
	}
	e.answer = nil
	if r, err := Run(t.Context(), s.request(e)); err != nil || !r.Continued || !r.Proven {
		t.Fatalf("%s, %v", shown(r), err)
	}
	s.check(t, want, s.hosts...)
}

// A disk is lost, and what was set aside with it: declared dead, its host keeps the
// others from being put back no more.
func TestUndoWithALostDisk(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	e := &heard{t: t}
	_, err := Run(t.Context(), s.request(e))
	require.NoError(t, err)
	s.killAll(s.hosts[2])
	require.NoError(t, os.RemoveAll(s.hosts[2].dataDir()))
	req := s.request(e)
	var failed *HostsError
	if _, err := Undo(t.Context(), req); !errors.As(err, &failed) || failed.Phase != PhasePutBack || len(failed.Errs) != 1 {
		t.Fatalf("%v", err)
	}
	req.DeclareDead = []string{"m3"}
	u, err := Undo(t.Context(), req)
	require.NoError(t, err)
	if u.Hosts[2].Failed == "" || u.Hosts[2].Started || !u.Hosts[1].Started {
		t.Errorf("%s", shown(u))
	}
	s.waitReady(t, s.hosts[:2]...)
	s.check(t, want, s.hosts[:2]...)
}

// An old member's disk is new and empty, and it gets no member: its etcd would begin
// an empty cluster there.
func TestEmptyDirectoryIsBlocked(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	empty := s.hosts[2]
	require.NoError(t, errors.Join(os.RemoveAll(empty.dataDir()), os.Mkdir(empty.dataDir(), 0o700)))
	req := s.request(&heard{t: t})
	req.Change = sources.MembersRequest{Names: []string{"m1", "m2"}}
	if r, err := Run(t.Context(), req); err != nil || !r.Proven {
		t.Fatalf("%s, %v", shown(r), err)
	}
	empty.run(t)
	if !empty.ends() {
		t.Error("a member runs of an empty directory")
	}
	s.check(t, want, s.hosts[:2]...)
	_, err := Undo(t.Context(), req)
	require.NoError(t, err)
	s.waitReady(t, s.hosts[:2]...)
	s.check(t, want, s.hosts[:2]...)
}

// Two recoveries, by the same coordinator. An undo takes the last one back; one more would
// take back the one before it, which is said and has to be typed.
func TestUndoTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("TestUndoFromTheMiddle takes a recovery back; this takes a recovery more")
	}
	t.Parallel()
	s := newSite(t, "3.6", 1)
	want := s.fill(t, "a", 5)
	e := &heard{t: t}
	for range 2 {
		s.killAll()
		_, err := Run(t.Context(), s.request(e))
		require.NoError(t, err)
	}
	_, err := Undo(t.Context(), s.request(e))
	require.NoError(t, err)
	e.answer = func(Question) (bool, error) { return false, nil }
	_, err = Undo(t.Context(), s.request(e))
	require.ErrorIs(t, err, ErrDeclined)
	for i, q := range e.questions[2:] {
		if again := strings.Contains(strings.Join(q.Reasons, "\n"), "is undone already"); !strings.HasPrefix(q.Text, "Take run ") || again != (i == 1) || (q.Type != "") != again {
			t.Errorf("%d: %+v", i, q)
		}
	}
	s.waitReady(t, s.hosts...)
	s.check(t, want, s.hosts...)
}
