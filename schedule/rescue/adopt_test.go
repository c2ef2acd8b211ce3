package rescue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agent "github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/control/client"
)

// TestDriverLost: the machine that drives a recovery is lost for good once the new
// members serve, before the proof or while clients are let back. One on another machine
// that has the cluster file alone is told so, completes it, with the proof where that
// was not given, and all clients run again.
func TestDriverLost(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "repo")
	s := newSite(t, "3.6", 3, url)
	want := s.fill(t, "a", 20)
	s.backup(t, url)
	for _, h := range s.hosts {
		h.quickClient(t)
	}
	for i, proves := range []bool{true, false} {
		s.killAll()
		s.loseDriver(t, i, PhaseProve, "")
		if !proves { // as after the proof: one host's clients are back, and the others' are not
			s.resume(t, s.hosts[0])
		}
		s.waitReady(t, s.hosts...)
		e := &heard{t: t}
		req := s.onMachine(e, fmt.Sprint("other", i))
		var held *HeldError
		if _, err := Run(t.Context(), req); !errors.As(err, &held) || !held.Serves || !strings.Contains(err.Error(), "--take-over") {
			t.Fatalf("proves %t: without --take-over: %v", proves, err)
		}
		req.TakeOver = true
		if p, err := Look(t.Context(), req); err != nil || len(p.Obstacles) > 0 || !strings.Contains(strings.Join(p.Warnings, " "), "is completed") {
			t.Errorf("proves %t: a dry run: %v, %s", proves, err, shown(p))
		}
		r, err := Run(t.Context(), req)
		if err != nil {
			t.Fatalf("proves %t: %v", proves, err)
		}
		if r.Inherited == "" || len(r.Members) != 3 || len(r.Incomplete) > 0 || len(r.Lineage) != 1 || len(r.Lineage[0].Superseded) == 0 || len(r.Snapshots) != 1 || len(e.questions) != 1 {
			t.Errorf("proves %t: %s", proves, shown(r))
		}
		if e.did("prove ") != proves || e.did("rebuild m1") || e.did("set-aside m1") {
			t.Errorf("proves %t: it did %v", proves, e.steps)
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
}

// TestDriverLostEarly: it is lost before anything was set aside, and the old cluster
// serves again: its clients are started, and nothing else is done.
func TestDriverLostEarly(t *testing.T) {
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
		s.asHolder(t, h, func(ctx context.Context, c *client.Client) error {
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

// loseDriver ends a recovery where a phase begins, with its state folder.
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
	if err := os.RemoveAll(req.Config.StateDir); err != nil {
		t.Fatal(err)
	}
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
	s.asHolder(t, h, func(ctx context.Context, c *client.Client) error {
		_, err := c.Resume(ctx)
		return err
	})
}

// asHolder does something on a host in the name of the run that has it, once nothing is
// under way there that its driver had begun.
func (s *site) asHolder(t *testing.T, h *testHost, do func(context.Context, *client.Client) error) {
	t.Helper()
	d, err := newDriver(s.onMachine(nil, "asks"))
	if err != nil {
		t.Fatal(err)
	}
	d.run = "recovery-asks"
	if err := d.reach(); err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.states(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := d.host(h.name)
	c, err := d.client(at.Host, at.state.Holder, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
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

// TestUndoneMemberCrashes: a member that ran, as its supervisor said, crashes at each
// start. The undo puts everything back and says that it does not start; the next
// recovery is a new one.
func TestUndoneMemberCrashes(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 3)
	want := s.fill(t, "a", 20)
	s.killAll()
	h := s.hosts[0]
	wanted := filepath.Join(h.dir, "wanted")
	script := func(name, text string) []string {
		path := filepath.Join(h.dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
	h.cfg.Member.Command.Status = script("status", "[ -e "+wanted+" ] || exit 3")
	h.cfg.Member.Command.Stop = script("unwant", "rm -f "+wanted)
	good := h.cfg.Member.Command.Start
	h.cfg.Member.Command.Start = script("crash", "touch "+wanted)
	h.cfg.Member.StartTimeout = agent.Duration(300 * time.Millisecond)
	if err := os.WriteFile(wanted, nil, 0o600); err != nil { // it is between two attempts
		t.Fatal(err)
	}
	h.end()
	h.control(t)
	e := &heard{t: t}
	if _, err := Run(t.Context(), s.request(e)); err == nil {
		t.Fatal("it started")
	}
	var failed *HostsError
	if _, err := Undo(t.Context(), s.request(e)); !errors.As(err, &failed) || failed.Phase != PhaseUndoStart {
		t.Fatalf("the undo: %v", err)
	}
	h.cfg.Member.Command.Start, h.cfg.Member.Command.Status = good, nil
	h.cfg.Member.StartTimeout = agent.Duration(20 * time.Second)
	h.end()
	h.control(t)
	s.killAll()
	r, err := Run(t.Context(), s.request(e))
	if err != nil || r.WentOn {
		t.Fatalf("%v, %s", err, shown(r))
	}
	s.check(t, want, s.hosts...)
}
