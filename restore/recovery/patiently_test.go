package recovery

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
)

// slowClient is a client of a host whose programs wait, both to stop and to start
// it, until a file is there. It runs when this returns.
func (h *testHost) slowClient(t *testing.T) (mayStop, mayStart string) {
	t.Helper()
	path := func(name string) string { return filepath.Join(h.dir, name) }
	// Of no other test, nor of another run beside this one: all processes of the machine are
	// looked at, of whose names the kernel keeps 15 letters.
	program := fmt.Sprintf("f%d-%d", os.Getpid(), clientNumber.Add(1))
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, errors.Join(err, os.Symlink(sleep, path(program))))
	script := func(name, text string) []string {
		require.NoError(t, storetest.WriteProgram(path(name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return []string{path(name)}
	}
	mayStop, mayStart = path("may-stop"), path("may-start")
	run := fmt.Sprintf("setsid %s 600 </dev/null >/dev/null 2>&1 &\necho $! >%s", path(program), path("front.pid"))
	h.cfg.Clients = []supervisor.ClientConfig{{
		Name: "front", Process: program,
		ServiceConfig: supervisor.ServiceConfig{
			Kind: supervisor.Command, StopTimeout: yamlfile.Duration(20 * time.Second), StartTimeout: yamlfile.Duration(30 * time.Second),
			Command: supervisor.CommandMember{
				Start: script("start-front", "until [ -e "+mayStart+" ]; do sleep 0.02; done\n"+run),
				Stop:  script("stop-front", "until [ -e "+mayStop+" ]; do sleep 0.02; done\nkill $(cat "+path("front.pid")+")"),
			},
		},
	}}
	end := func() { _ = exec.Command("sh", "-c", "kill $(cat "+path("front.pid")+")").Run() } // it may have ended
	t.Cleanup(end)
	if out, err := exec.Command(script("run-front", run)[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.end()
	h.control(t)
	return mayStop, mayStart
}

// clientNumber distinguishes the programs of clients.
var clientNumber atomic.Int64

// quickClient is one that stops and starts at once.
func (h *testHost) quickClient(t *testing.T) {
	t.Helper()
	mayStop, mayStart := h.slowClient(t)
	for _, path := range []string{mayStop, mayStart} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
}

// addClients gives each host a quick client.
func (s *site) addClients(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		h.quickClient(t)
	}
}

// clientRuns reports whether the client's process runs.
func (h *testHost) clientRuns() bool {
	return exec.Command("sh", "-c", "kill -0 $(cat "+filepath.Join(h.dir, "front.pid")+")").Run() == nil
}

// TestSaysWhoIsWaitedFor: a client that takes its time to stop, and then to start, is
// named while the command waits for it, with how long it may take at most. The client
// ends and comes back only once that was said.
func TestSaysWhoIsWaitedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for clients that take their time")
	}
	t.Parallel()
	s, want := deadSite(t, 1)
	mayStop, mayStart := s.hosts[0].slowClient(t)
	lets := map[string]string{
		"m1: client front is stopping, for which it gets 20s at most: it runs": mayStop,
		"m1: client front is starting, for which it gets 30s at most":          mayStart,
	}
	said := map[string]bool{}
	e := &heard{t: t, waits: func(_ Phase, text string) {
		for part, file := range lets {
			if !strings.HasPrefix(text, part) || said[part] {
				continue
			}
			said[part] = true
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}}
	req := s.request(e)
	req.watchAfter = time.Second // the host knows by then that it runs; the next look is 15 s later
	_, err := Run(t.Context(), req)
	require.NoError(t, err)
	if len(said) != len(lets) {
		t.Errorf("said was %v", said)
	}
	s.check(t, want, s.hosts...)
}
