package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// systemctl stands in for systemd's, which runs nowhere but as a host's first
// process: it knows one unit, as the properties of systemd 255 are printed.
const systemctl = `#!/bin/sh
dir=%q
echo "$1" >>$dir/calls
running() { test -f $dir/pid && kill -0 $(cat $dir/pid) 2>/dev/null; }
begin() { setsid %q client busy >$dir/log 2>&1 & echo $! >$dir/pid; }
case "$1" in
show)
	state=inactive pid=0 load=loaded
	test -f $dir/failed && state=failed
	test -f $dir/load && load=$(cat $dir/load)
	running && state=active pid=$(cat $dir/pid)
	test -f $dir/stopping && running && state=deactivating
	printf 'MainPID=%%s\nLoadState=%%s\nActiveState=%%s\nSubState=x\n' $pid $load $state ;;
reset-failed) rm -f $dir/failed ;;
start) test -f $dir/broken && { touch $dir/failed; exit 0; }; running || { rm -f $dir/stopping; begin; } ;;
stop) running && { touch $dir/stopping; kill $(cat $dir/pid); }; exit 0 ;;
restart) (old=$(cat $dir/pid); kill $old; while kill -0 $old 2>/dev/null; do sleep 0.05; done; begin) >/dev/null 2>&1 & ;;
kill) test "$*" = 'kill --kill-who=main --signal=SIGKILL -- kube-apiserver.service' && kill -9 $(cat $dir/pid) ;;
*) exit 1 ;;
esac
`

// TestSystemd (promises 1 and 2): the unit's process is waited for, also when it has
// requests under way; a restart is over when another process runs; what has failed
// did not run, and is not waited for.
func TestSystemd(t *testing.T) {
	t.Parallel()
	dir, exe := t.TempDir(), program(t, "unit")
	ctl := filepath.Join(dir, "systemctl")
	write(t, ctl, fmt.Sprintf(systemctl, dir, exe), 0o700)
	t.Cleanup(func() { kill(t, dir) })
	s := &systemd{evidence{process: filepath.Base(exe)}, SystemdMember{Unit: "kube-apiserver.service", Systemctl: ctl}}
	require.NoError(t, s.Check(t.Context()))
	if wanted, err := s.Wanted(t.Context()); err != nil || wanted {
		t.Error(wanted, err)
	}
	for range 2 {
		require.NoError(t, s.Start(soon(t, 10*time.Second)))
	}
	if wanted, err := s.Wanted(t.Context()); err != nil || !wanted {
		t.Error(wanted, err)
	}
	before, err := s.state(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Restart(soon(t, 10*time.Second)))
	if after, err := s.state(t.Context()); err != nil || after.MainPID == before.MainPID || after.MainPID == "0" {
		t.Errorf("process %s, then %s: %v", before.MainPID, after.MainPID, err)
	}
	for range 2 {
		require.NoError(t, s.Stop(soon(t, 10*time.Second)))
	}
	require.NoError(t, s.Stopped(t.Context()))
	if killed, err := s.Kill(t.Context()); err != nil || killed {
		t.Errorf("one that has ended: killed %t, %v", killed, err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || strings.Count(string(calls), "start\n") != 2 { // and "restart"
		t.Errorf("%v:\n%s", err, calls)
	}
	require.NoError(t, s.Start(soon(t, 10*time.Second)))
	write(t, exe+".hold", "", 0o600) // it waits for its requests
	require.Error(t, s.Stop(soon(t, time.Second)))
	if killed, err := s.Kill(t.Context()); err != nil || !killed {
		t.Errorf("killed %t, %v", killed, err)
	}
	require.NoError(t, s.Stop(soon(t, 10*time.Second)))
	write(t, filepath.Join(dir, "broken"), "", 0o600)
	require.ErrorContains(t, s.Start(soon(t, 10*time.Second)), "journalctl -u kube-apiserver.service")
	if wanted, err := s.Wanted(t.Context()); err != nil || wanted {
		t.Error(wanted, err)
	}
	// Whatever is not there is inactive: a unit of another name proves nothing.
	write(t, filepath.Join(dir, "load"), "not-found", 0o600)
	if err := s.Stopped(t.Context()); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "not-found") {
		t.Errorf("%v", err)
	}
}
