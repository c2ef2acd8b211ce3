package recovertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
)

// TestClientsThatWereDown: what ended itself after the quorum was lost runs after the
// recovery. One that does not start is named, and the exit code says so, until the same
// command has started it. An undo leaves those stopped that did not run before.
func TestClientsThatWereDown(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Version: "3.6", Clients: true})
	run := func(h *Host, script string) {
		out, err := h.space.command(filepath.Join(h.dir, script)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	for _, h := range s.Hosts()[1:] {
		run(h, "stop-front")
	}
	s.KillAll(t)
	broken := filepath.Join(s.Host(2).dir, "start-front")
	require.NoError(t, os.Rename(broken, broken+".away"))
	s.Host(2).writeMode(t, "start-front", "#!/bin/sh\necho no such image >&2\nexit 1\n", 0o700)

	e := s.Must(t, exitIncomplete, s.recovering(t, s.Hosts())...)
	var r recovery.Report
	if e.Decode(t, &r); len(r.Incomplete) != 1 || !strings.Contains(r.Incomplete[0], "m3: client front is not started") || r.ClientsBack > 0 {
		t.Errorf("a client does not start: %+v, back after %s", r.Incomplete, r.ClientsBack)
	}
	if !s.Host(0).FrontRuns(t) || !s.Host(1).FrontRuns(t) || s.Host(2).FrontRuns(t) {
		t.Error("clients of m1 and m2 do not run, or that of m3 does")
	}
	require.NoError(t, os.Rename(broken+".away", broken))
	if r := s.recover(t, exitOK, s.Hosts()); len(r.Incomplete) > 0 || r.ClientsBack == 0 || !s.Host(2).FrontRuns(t) {
		t.Errorf("run again: %+v, back after %s", r.Incomplete, r.ClientsBack)
	}

	e = s.Must(t, exitOK, "recover", "--config", s.ClusterFile(t, s.Hosts()...), "--undo", "--yes")
	if !s.Host(0).FrontRuns(t) || s.Host(1).FrontRuns(t) || s.Host(2).FrontRuns(t) {
		t.Error("after the undo other clients run than before the recovery")
	}
	for _, name := range []string{"m2", "m3"} {
		if n := strings.Count(e.Stderr, "WARNING: "+name+": client front did not run before the recovery, and was not started"); n != 1 {
			t.Errorf("that the client of %s is left stopped is printed %d times: %s", name, n, e)
		}
	}
}
