package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
)

// TestUndoneMemberCrashes: a member that ran, as its supervisor said, crashes at each
// start. The undo puts everything back, clients of the others among it, and says that it
// does not start; the next recovery is a new one.
func TestUndoneMemberCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("TestUndoFromTheMiddle takes a recovery back; this takes a recovery more")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	h := s.hosts[0]
	s.hosts[1].quickClient(t)
	wanted := filepath.Join(h.dir, "wanted")
	script := func(name, text string) []string {
		path := filepath.Join(h.dir, name)
		require.NoError(t, storetest.WriteProgram(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return []string{path}
	}
	h.cfg.Command.Status = script("status", "[ -e "+wanted+" ] || exit 3")
	h.cfg.Command.Stop = script("unwant", "rm -f "+wanted)
	good := h.cfg.Command.Start
	h.cfg.Command.Start = script("crash", "touch "+wanted)
	h.cfg.StartTimeout = yamlfile.Duration(300 * time.Millisecond)
	if err := os.WriteFile(wanted, nil, 0o600); err != nil { // it is between two attempts
		t.Fatal(err)
	}
	h.end()
	h.control(t)
	e := &heard{t: t}
	_, err := Run(t.Context(), s.request(e))
	require.Error(t, err, "it started")
	var failed *HostsError
	if _, err := Undo(t.Context(), s.request(e)); !errors.As(err, &failed) || failed.Phase != PhaseUndoStart {
		t.Fatalf("the undo: %v", err)
	}
	s.waitReady(t, s.hosts[1:]...)
	var serves *QuorumError
	if _, err := Run(t.Context(), s.request(e)); !errors.As(err, &serves) {
		t.Errorf("the other two serve: %v", err)
	}
	if !s.hosts[1].clientRuns() {
		t.Error("the client of m2 does not run, and nothing goes on that would start it")
	}
	h.cfg.Command.Start, h.cfg.Command.Status = good, nil
	h.cfg.StartTimeout = yamlfile.Duration(20 * time.Second)
	h.end()
	h.control(t)
	s.killAll()
	r, err := Run(t.Context(), s.request(e))
	if err != nil || r.Continued {
		t.Fatalf("%v, %s", err, shown(r))
	}
	s.check(t, want, s.hosts...)
}
