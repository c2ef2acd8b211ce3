package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// startFirst has the program that starts the host's etcd do something first.
func (h *testHost) startFirst(t *testing.T, text string) {
	t.Helper()
	start, err := os.ReadFile(h.start)
	require.NoError(t, err)
	h.end() // what is begun there would use the old one
	require.NoError(t, storetest.WriteProgram(h.start, []byte("#!/bin/sh\n"+text+"\n"+string(start)), 0o700))
	h.control(t)
}

// TestLateMember: clients are let on the cluster when a quorum of it is proved. A member that
// starts later is compared although they write, and its host's clients start after it.
func TestLateMember(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	s.addClients(t)
	late, mayStart := s.hosts[2], filepath.Join(s.dir, "may-start")
	late.startFirst(t, "until [ -e "+mayStart+" ]; do sleep 0.02; done")
	e := &heard{t: t}
	var r *Report
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err = Run(t.Context(), s.request(e))
	}()
	resumed := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.did("resume m1") && e.did("resume m2")
	}
	for !resumed() {
		select {
		case <-ended:
			t.Fatalf("no client was let on the cluster before %s had started: %v", late.name, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := restore.CheckMemberIdle(late.dataDir(), ""); err != nil || !s.hosts[0].clientRuns() || !s.hosts[1].clientRuns() {
		t.Errorf("%s: %v; clients run: %t, %t", late.name, err, s.hosts[0].clientRuns(), s.hosts[1].clientRuns())
	}
	for k, v := range s.fillAt(t, "b", s.hosts[:2]...) {
		want[k] = v
	}
	require.NoError(t, os.WriteFile(mayStart, nil, 0o600))
	<-ended
	if err != nil || !r.Proven || !r.Proof.Complete() || len(r.Proof.Members) != 3 || len(r.Incomplete) > 0 || !e.did("late ") {
		t.Fatalf("%v, %s", err, shown(r))
	}
	if m := r.Proof.Members[2]; m.Name != late.name || m.HashKV.Hash == 0 || m.HashKV.Hash != r.Proof.HashKV.Hash {
		t.Errorf("%s was not compared: %+v", late.name, r.Proof)
	}
	if said := strings.Join(e.notes, "\n"); !strings.Contains(said, "member m3 is not up yet, and clients do not wait for it") {
		t.Errorf("said was %s", said)
	}
	s.check(t, want, late)
	s.clientsRun(t)
}

// TestMemberIsNotStarted: a member that cannot be started keeps no client waiting. The outcome
// names it, and the same command starts it once that is mended.
func TestMemberIsNotStarted(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	s.addClients(t)
	mended := filepath.Join(s.dir, "mended")
	s.hosts[2].startFirst(t, "[ -e "+mended+" ] || exit 7")
	e := &heard{t: t}
	req := s.request(e)
	req.lateTimeout = time.Millisecond
	r, err := Run(t.Context(), req)
	if r == nil || !errors.As(err, new(snapshot.IncompleteError)) || !strings.Contains(err.Error(), "m3 was not started: ") || len(r.Incomplete) != 1 || len(r.Proof.Missing) != 1 || len(r.Proof.Members) != 2 {
		t.Fatalf("%v, %s", err, shown(r))
	}
	s.check(t, want, s.hosts[:2]...)
	s.clientsRun(t)
	require.NoError(t, os.WriteFile(mended, nil, 0o600))
	r, err = Run(t.Context(), s.onMachine(t, e, "other"))
	if err != nil || !r.Continued || !r.Proof.Complete() || len(r.Proof.Members) != 3 || len(e.questions) != 1 {
		t.Fatalf("%v, %s", err, shown(r))
	}
	s.check(t, want, s.hosts[2])
}

// TestTooFewMembersStart: where too few members start for a quorum the command says so at
// once, and clients stay stopped.
func TestTooFewMembersStart(t *testing.T) {
	t.Parallel()
	s, want := deadSite(t, 3)
	s.addClients(t)
	mended := filepath.Join(s.dir, "mended")
	for _, h := range s.hosts[1:] {
		h.startFirst(t, "[ -e "+mended+" ] || exit 7")
	}
	e := &heard{t: t}
	var failed *HostsError
	if _, err := Run(t.Context(), s.request(e)); !errors.As(err, &failed) || failed.Phase != PhaseStart || len(failed.Errs) != 2 || failed.Errs["m1"] != nil {
		t.Fatalf("%v", err)
	}
	if done := strings.Join(e.steps, "\n"); strings.Contains(done, string(PhaseResume)) {
		t.Errorf("clients were started: %s", done)
	}
	require.NoError(t, os.WriteFile(mended, nil, 0o600))
	if r, err := Run(t.Context(), s.request(e)); err != nil || !r.Continued || !r.Proof.Complete() {
		t.Fatalf("%v, %s", err, shown(r))
	}
	s.check(t, want, s.hosts...)
	s.clientsRun(t)
}
