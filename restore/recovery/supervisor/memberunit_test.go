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

	"github.com/requorum/requorum/store/storetest"
)

// etcdSystemctl stands in for systemd's, which runs nowhere but as a host's first
// process: it knows one unit, as the properties of systemd 255 are printed, and
// starts and stops a real etcd.
const etcdSystemctl = `#!/bin/sh
dir=%q
echo "$@" >>$dir/calls
running() { test -f $dir/pid && kill -0 $(cat $dir/pid) 2>/dev/null; }
case "$1" in
show)
	state=inactive pid=0
	test -f $dir/failed && state=failed
	running && state=active pid=$(cat $dir/pid)
	printf 'MainPID=%%s\nLoadState=loaded\nActiveState=%%s\nSubState=x\n' $pid $state ;;
reset-failed) rm -f $dir/failed ;;
start)
	test -f $dir/broken && { touch $dir/failed; exit 0; }
	setsid %s --data-dir=%q --name=%s --listen-client-urls=http://127.0.0.1:0 --advertise-client-urls=http://127.0.0.1:1 --listen-peer-urls=http://127.0.0.1:0 >$dir/log 2>&1 &
	echo $! >$dir/pid ;;
stop) running && kill $(cat $dir/pid); exit 0 ;;
*) exit 1 ;;
esac
`

func TestMemberUnit(t *testing.T) {
	dataDir, name := data(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "systemctl")
	write(t, program, fmt.Sprintf(etcdSystemctl, dir, storetest.Binary(t, "3.6", "etcd"), dataDir, name), 0o700)
	c, err := NewMember(MemberConfig{Name: "m1", DataDir: dataDir, ServiceConfig: ServiceConfig{Kind: Systemd, Systemd: SystemdMember{Unit: "etcd.service", Systemctl: program}}}, dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(soon(t, 10*time.Second)) })
	require.NoError(t, c.Check(t.Context()))
	for range 2 {
		require.NoError(t, c.Start(soon(t, 20*time.Second)))
	}
	if err := c.Stopped(t.Context()); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "is active") {
		t.Errorf("%v", err)
	}
	for range 2 {
		require.NoError(t, c.Stop(soon(t, 20*time.Second)))
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || strings.Count(string(calls), "start --no-block -- etcd.service") != 1 || !strings.Contains(string(calls), "reset-failed -- etcd.service") {
		t.Errorf("%v:\n%s", err, calls)
	}
	// A unit that fails is not waited for.
	write(t, filepath.Join(dir, "broken"), "", 0o600)
	began := time.Now()
	if err := c.Start(soon(t, time.Minute)); err == nil || !strings.Contains(err.Error(), "journalctl -u etcd.service") || time.Since(began) > 20*time.Second {
		t.Errorf("%v", err)
	}
}
