package recovertest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/store/storetest"
)

// TestPoint4CoordinatorKilled is point 4 of what recover must show: the command is
// killed with SIGKILL, again and again, each time some changes of the hosts' state files later,
// and run again. The operator's machine keeps nothing of it but the cluster file, not even
// temporary files. It comes to the same end, and at no moment a member that could start
// meets a directory without a log.
func TestPoint4CoordinatorKilled(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Version: "3.7"})
	temporary := t.TempDir()
	s.Env = append(s.Env, "TMPDIR="+temporary)
	// How often one recovery is killed before its end depends on how late a busy machine
	// delivers the signal. Therefore the next recovery, of the cluster that the one before
	// made, goes on until the number is reached.
	kills, recoveries, want := 0, 0, short(8, 12)
	for kills < want {
		recoveries++
		n := s.killedAgainAndAgain(t, fmt.Sprintf("/load/%d/", recoveries))
		if kills += n; n < 2 {
			t.Fatalf("the command was killed %d times in recovery %d, and ended before it was killed twice", n, recoveries)
		}
	}
	figure(t, "recoveries", recoveries)
	figure(t, "kills", kills)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

// killedAgainAndAgain is one recovery, run again after each kill until it comes to its end.
func (s *Site) killedAgainAndAgain(t *testing.T, prefix string) (kills int) {
	t.Helper()
	l := LightLoad(t, prefix, Writes(200), s.Strike(t), s.Client(t, s.Members()...), s.Client(t, s.Members()...))
	end := s.Watch(t, s.Members()...)
	defer end()
	// At first they only store what is decided, and do nothing.
	for line := 1; ; line = min(line+short(3, 1), 8) {
		before := s.Steps(t)
		r := s.Start(t, s.recovering(t, s.Hosts())...)
		if s.KillAtStep(t, r, before+line) {
			kills++
			continue
		}
		if e := r.Wait(t); kills > 0 && e.Code == exitFailed {
			s.allWasDone(t, e, prefix, l)
		} else {
			s.same(t, e, prefix, l)
		}
		return kills
	}
}

// TestPoint4KilledOnce is the same with a new recovery for each step at which it is killed
// once, of those on the hosts, on which clients are stopped and started, and of those in a
// repository: of the cluster that the one before made.
func TestPoint4KilledOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("TestPoint4CoordinatorKilled kills it, of one recovery")
	}
	t.Parallel()
	s := Start(t, Options{Version: "3.6", Clients: true, Repository: OnDisk, NoAgents: true})
	kills, every := 0, storetest.Amount(0, 5, 1)
	for step := 1; step < 500; step += every {
		require.NoError(t, os.RemoveAll(strings.TrimPrefix(s.Repository, "file://")))
		s.Must(t, exitOK, "backup", "--endpoints", s.Host(0).ClientURL, "--repo", s.Repository)
		prefix := fmt.Sprintf("/load/%d/", step)
		l := LightLoad(t, prefix, Writes(50), s.Strike(t), s.Client(t, s.Members()...))
		end := s.Watch(t, s.Members()...)
		before := s.Steps(t)
		r := s.Start(t, s.recovering(t, s.Hosts())...)
		killed := s.KillAtStep(t, r, before+step)
		var e storetest.Ended
		if killed {
			kills++
			e = s.Run(t, s.recovering(t, s.Hosts())...)
		} else {
			e = r.Wait(t)
		}
		done := killed && e.Code == exitFailed
		if done {
			s.allWasDone(t, e, prefix, l)
		} else {
			s.same(t, e, prefix, l)
		}
		end()
		for _, h := range s.Members() {
			if !h.FrontRuns(t) {
				t.Errorf("step %d: the client of %s does not run", step, h.Name)
			}
		}
		if !killed || done {
			break
		}
	}
	if want := 40 / every; kills < want {
		t.Errorf("the command was killed %d times, want %d", kills, want)
	}
	figure(t, "recoveries killed once", kills)
}

// allWasDone: the command was killed when hosts had stored the end already, or were about
// to, so that only the report was not printed. Run again, it leaves the cluster alone.
func (s *Site) allWasDone(t *testing.T, e storetest.Ended, prefix string, l *Load) {
	t.Helper()
	last := s.LastDecision(t).Epoch
	if !strings.Contains(e.Stderr, "serves") || !slices.ContainsFunc(s.Decisions(t), func(d stored) bool { return d.Finished && d.Epoch == last }) {
		t.Fatalf("run again: %s", e)
	}
	s.nothingMissing(t, prefix, l, s.Members()...)
}

// same wants the end that an undisturbed recovery comes to: proven, served by all,
// with everything that was acknowledged.
func (s *Site) same(t *testing.T, e storetest.Ended, prefix string, l *Load) {
	t.Helper()
	if e.Code != exitOK {
		t.Fatalf("exit code %d: %s", e.Code, e)
	}
	var r recovery.Report
	e.Decode(t, &r)
	if !r.Proven || r.Lost.Entries != 0 || len(r.Incomplete) > 0 || len(r.Members) != len(s.Members()) {
		t.Errorf("proven %t, lost %+v, incomplete %v, members %+v", r.Proven, r.Lost, r.Incomplete, r.Members)
	}
	s.nothingMissing(t, prefix, l, s.Members()...)
}

// TestPoint4HostsFail: a host process that is killed, and a host that loses its
// link, in the middle of each phase. The command waits for them for a while and
// goes on, or is run again, and comes to the same end.
func TestPoint4HostsFail(t *testing.T) {
	if testing.Short() {
		t.Skip("in restore/recovery a host goes away at each step")
	}
	t.Parallel()
	s := Start(t, Options{Version: "3.5"})
	m2, m3 := s.Host(1), s.Host(2)
	l := LightLoad(t, "/load/", Writes(200), s.Strike(t), s.Client(t, s.Members()...), s.Client(t, s.Members()...))
	end := s.Watch(t, s.Members()...)

	// A host that is away, and was not declared dead, before anything is begun.
	m3.LinkDown(t)
	if e := s.Run(t, s.recovering(t, s.Hosts())...); e.Code == exitOK || s.Steps(t) > 0 {
		t.Errorf("with %s away: %s", m3.Name, e)
	}
	m3.LinkUp(t)

	r := s.Start(t, s.recovering(t, s.Hosts())...)
	failures := 0
	for line := 6; ; line += 3 {
		if !s.AtStep(t, r, line, func() {
			m2.KillControl(t)
			m3.LinkDown(t)
		}) {
			break
		}
		failures++
		time.Sleep(500 * time.Millisecond)
		m3.LinkUp(t)
	}
	e := r.Wait(t)
	for again := 0; e.Code != exitOK && again < 3; again++ { // it may have given up meanwhile
		t.Logf("once more: %s", e)
		e = s.Run(t, s.recovering(t, s.Hosts())...)
	}
	s.same(t, e, "/load/", l)
	end()
	if failures < 3 {
		t.Errorf("hosts failed %d times in the middle, want 3", failures)
	}
	figure(t, "failures of hosts", failures)
}
