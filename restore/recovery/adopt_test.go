package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore/recovery/host"
)

// TestDriverLost: the machine that drives a recovery is lost for good once the new
// members serve, before the proof or while clients are let back. One on another machine
// that has the cluster file alone is told so, completes it, with the proof where that
// was not given, and all clients run again. A lease that ended meanwhile is no fault. The
// lost machine, when it is found again, knows better than to stop the clients, or to say
// that none was let on the cluster.
func TestDriverLost(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "repo")
	s := newSite(t, "3.6", 3, url)
	want := s.fill(t, "a", 20)
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	s.backup(t, url, key.Recipient())
	s.config.Recipients = []string{key.Recipient().String()}
	for _, h := range s.hosts {
		h.quickClient(t)
	}
	for i, proves := range []bool{true, false} {
		var lease clientv3.LeaseID
		if proves {
			lease = s.lease(t, 8) // longer than it takes from here to the next line
		}
		s.killAll()
		s.loseDriver(t, i, PhaseProve, "")
		if !proves { // as after the proof: one host's clients are back, and the others' are not
			s.resume(t, s.hosts[0])
		}
		s.waitReady(t, s.hosts...)
		if proves {
			s.waitEnded(t, lease)
		}
		e := &heard{t: t}
		req := s.onMachine(e, fmt.Sprint("other", i))
		var held *ConflictError
		if _, err := Run(t.Context(), req); !errors.As(err, &held) || !held.Serves || !strings.Contains(err.Error(), "--take-over") {
			t.Fatalf("proves %t: without --take-over: %v", proves, err)
		}
		req.TakeOver = true
		if p, err := Preflight(t.Context(), req); err != nil || len(p.Blockers) > 0 || !strings.Contains(strings.Join(p.Warnings, " "), "is completed") {
			t.Errorf("proves %t: a dry run: %v, %s", proves, err, shown(p))
		}
		var blocker *BlockedError
		req.Config.Recipients = nil // who looks after it here does not know that backups are encrypted
		if _, err := Run(t.Context(), req); !errors.As(err, &blocker) || !strings.Contains(err.Error(), "are encrypted") || len(e.questions) > 0 {
			t.Errorf("proves %t: a snapshot in the clear: %v", proves, err)
		}
		req.Config.Recipients = s.config.Recipients
		r, err := Run(t.Context(), req)
		if err != nil {
			t.Fatalf("proves %t: %v", proves, err)
		}
		if r.Inherited == "" || len(r.Members) != 3 || len(r.Incomplete) > 0 || len(r.Lineage) != 1 || len(r.Lineage[0].Superseded) == 0 || len(r.Snapshots) != 1 || len(e.questions) != 1 {
			t.Errorf("proves %t: %s", proves, shown(r))
		}
		for _, h := range r.Hosts {
			if h.Aside == nil || len(h.Aside.Paths()) == 0 || !strings.Contains(strings.Join(r.Next, "\n"), h.Member+": the old data is in "+h.Aside.Folder) {
				t.Errorf("proves %t: where the old data of %s is: %+v, %q", proves, h.Member, h.Aside, r.Next)
			}
		}
		if e.did("prove ") != proves || e.did("rebuild m1") || e.did("set-aside m1") {
			t.Errorf("proves %t: it did %v", proves, e.steps)
		}
		if said := strings.Join(r.Proof.Proved, ", "); proves && !strings.Contains(said, "the lease of what was rebuilt is there, or ended since") {
			t.Errorf("no lease was looked for: %s", said)
		}
		s.check(t, want, s.hosts...)
		for _, h := range s.hosts {
			if !h.clientRuns() {
				t.Errorf("proves %t: the client of %s does not run", proves, h.name)
			}
		}
		if _, err := Undo(t.Context(), req); !errors.Is(err, ErrNothingToUndo) {
			t.Errorf("proves %t: undone from elsewhere: %v", proves, err)
		}
	}
	s.foundAgain(t, 1)
}

// foundAgain goes on with a run on the machine that was lost, which one on another has
// completed, after an undo of it that is declined.
func (s *site) foundAgain(t *testing.T, number int) {
	t.Helper()
	e := &heard{t: t, answer: func(Question) (bool, error) { return false, nil }}
	req := s.onMachine(e, fmt.Sprint("lost", number))
	require.NoError(t, os.Rename(gone(req), req.Config.StateDir))
	s.killAll()
	if _, err := Undo(t.Context(), req); !errors.Is(err, ErrDeclined) || e.questions[0].Type != "production" {
		t.Errorf("an undo on the lost machine: %v, %s", err, shown(e.questions))
	}
	for _, h := range s.hosts {
		h.run(t)
	}
	s.waitReady(t, s.hosts...)
	e.answer = nil
	if r, err := Run(t.Context(), req); err != nil || e.did("quiesce m1") || e.did("prove ") {
		t.Errorf("the lost machine: %v, %s, it did %v", err, shown(r), e.steps)
	}
	for _, h := range s.hosts {
		if !h.clientRuns() {
			t.Errorf("the client of %s does not run", h.name)
		}
	}
}

// lease grants one, with a key under it, and waitEnded waits for its end.
func (s *site) lease(t *testing.T, seconds int64) clientv3.LeaseID {
	t.Helper()
	c := s.client(t, s.hosts...)
	l, err := c.Grant(t.Context(), seconds)
	if err == nil {
		_, err = c.Put(t.Context(), "leased", "", clientv3.WithLease(l.ID))
	}
	require.NoError(t, err)
	return l.ID
}

func (s *site) waitEnded(t *testing.T, id clientv3.LeaseID) {
	t.Helper()
	c := s.client(t, s.hosts...)
	for {
		l, err := c.TimeToLive(t.Context(), id)
		require.NoError(t, err)
		if l.TTL < 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestDriverLostEarly: it is lost before anything was set aside, and the old cluster
// serves again: its clients are started, and nothing else is done.
func TestDriverLostEarly(t *testing.T) {
	if testing.Short() {
		t.Skip("TestDriverLost loses it later; this takes a recovery more")
	}
	t.Parallel()
	s := newSite(t, "3.6", 3)
	want := s.fill(t, "a", 20)
	for _, h := range s.hosts {
		h.quickClient(t)
	}
	s.killAll()
	old := s.hosts[0].clientRuns()
	s.loseDriver(t, 0, PhaseFence, "m1")
	for _, h := range s.hosts { // a stop that is under way would end what is started now
		s.asHolder(t, h, func(ctx context.Context, c *host.Client) error {
			_, err := c.Stop(ctx)
			return err
		})
	}
	for _, h := range s.hosts {
		h.run(t)
	}
	s.waitReady(t, s.hosts...)
	e := &heard{t: t}
	req := s.onMachine(e, "other")
	req.TakeOver = true
	s.hosts[2].end() // there the run may have got further
	var away *HostsError
	if _, err := Run(t.Context(), req); !errors.As(err, &away) || len(e.questions) > 0 || away.Errs["m3"] == nil {
		t.Fatalf("with a host away: %v, asked %s", err, shown(e.questions))
	}
	s.hosts[2].control(t)
	e.answer = func(Question) (bool, error) { // the coordinator was not lost
		s.hosts[0].kill()
		s.asHolder(t, s.hosts[0], func(ctx context.Context, c *host.Client) error { _, err := c.SetAside(ctx); return err })
		return true, nil
	}
	if _, err := Run(t.Context(), req); err == nil || !strings.Contains(err.Error(), "has set data aside") || e.did(string(PhaseResume)+" m3") {
		t.Errorf("it had gone on meanwhile: %v", err)
	}
	s.asHolder(t, s.hosts[0], func(ctx context.Context, c *host.Client) error { _, err := c.Undo(ctx); return err })
	s.hosts[0].run(t)
	s.waitReady(t, s.hosts...)
	e.answer, e.questions = nil, nil
	r, err := Run(t.Context(), req)
	if err != nil || !old {
		t.Fatal(old, err)
	}
	if r.GivenUp == "" || len(r.Hosts) != 3 || e.did("quiesce m1") || len(e.questions) != 1 {
		t.Errorf("%s, it did %v", shown(r), e.steps)
	}
	s.untouchedData(t)
	s.check(t, want, s.hosts...)
	for _, h := range s.hosts {
		if !h.clientRuns() {
			t.Errorf("the client of %s does not run", h.name)
		}
	}
}

// gone is where the state folder of a lost machine is.
func gone(req Request) string { return req.Config.StateDir + ".gone" }

// loseDriver ends a recovery where a phase begins, and takes its state folder away.
func (s *site) loseDriver(t *testing.T, number int, phase Phase, host string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fired := false
	e := &heard{t: t, begun: func(p Phase, h string) {
		if p == phase && h == host {
			fired = true
			cancel()
		}
	}}
	req := s.onMachine(e, fmt.Sprint("lost", number))
	if _, err := Run(ctx, req); err == nil || !fired {
		t.Fatalf("it was not lost at %s %s: %v", phase, host, err)
	}
	require.NoError(t, os.Rename(req.Config.StateDir, gone(req)))
}

// onMachine is a request on another machine, which has the cluster file.
func (s *site) onMachine(e *heard, machine string) Request {
	cfg := *s.config
	cfg.StateDir = filepath.Join(s.dir, machine)
	req := s.request(e)
	req.Config = &cfg
	return req
}

// resume lets a host's clients on the cluster, as the run does that has it.
func (s *site) resume(t *testing.T, h *testHost) {
	t.Helper()
	s.asHolder(t, h, func(ctx context.Context, c *host.Client) error {
		_, err := c.Resume(ctx)
		return err
	})
}

// asHolder does something on a host in the name of the run that has it, once nothing is
// under way there that its coordinator had begun.
func (s *site) asHolder(t *testing.T, h *testHost, do func(context.Context, *host.Client) error) {
	t.Helper()
	d, err := newCoordinator(s.onMachine(nil, "asks"))
	require.NoError(t, err)
	d.run = "recovery-asks"
	require.NoError(t, d.reach())
	defer d.close()
	require.NoError(t, d.states(t.Context()))
	at := d.host(h.name)
	c := at.line.As(at.state.Holder, "")
	if _, err := act(t.Context(), d, PhaseResume, at, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx, c) }); err != nil {
		t.Fatal(err)
	}
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
