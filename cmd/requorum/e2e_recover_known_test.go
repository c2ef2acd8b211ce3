package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

// unitScript stands in for systemctl: it knows one unit, which starts a real etcd with
// the environment file.
const unitScript = `#!/bin/sh
dir=%q
running() { test -f $dir/pid && kill -0 $(cat $dir/pid) 2>/dev/null; }
case "$1" in
show)
	state=inactive pid=0
	test -f $dir/failed && state=failed
	running && state=active pid=$(cat $dir/pid)
	printf 'MainPID=%%s\nLoadState=loaded\nActiveState=%%s\nSubState=x\nExecStart={ path=/usr/bin/etcd ; argv[]=/usr/bin/etcd --x=y ; ignore_errors=no }\nEnvironmentFiles=%%s (ignore_errors=yes)\n' $pid $state $dir/env ;;
reset-failed) rm -f $dir/failed ;;
start)
	test -f $dir/broken && { touch $dir/failed; exit 0; }
	set -a; . $dir/env; set +a
	setsid %s --data-dir=%q --listen-client-urls=%s --advertise-client-urls=%s --listen-peer-urls=http://127.0.0.1:0 >$dir/log 2>&1 &
	echo $! >$dir/pid ;;
stop) running && kill $(cat $dir/pid); exit 0 ;;
*) exit 1 ;;
esac
`

// lostMember is a cluster of one with a backup, whose member was killed, and whose host
// has a unit for it and a control process.
type lostMember struct {
	*user
	cluster  *storetest.Cluster
	dir, env string
	known    []string // what is given instead of a cluster file
	port     int
}

func loseMember(t *testing.T) *lostMember {
	t.Helper()
	u := newUser(t)
	l := &lostMember{user: u, cluster: storetest.Start(t, storetest.Options{Version: "3.6"}), dir: t.TempDir()}
	m := l.cluster.Member(0)
	put := func(key string) {
		if _, err := l.cluster.Client(t).Put(t.Context(), key, "value"); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	repo := u.path("repo")
	u.must(t, exitOK, "backup", "--repo", repo, "--endpoints", m.ClientURL)
	put("b")
	l.cluster.Kill(0)

	ca := storetest.NewAuthority(t)
	hostCert, hostKey := ca.IssueHost(t, "host", time.Hour, net.IPv4(127, 0, 0, 1), protocol.Copy.Role())
	var roles []string
	for _, v := range protocol.Verbs() {
		roles = append(roles, v.Role())
	}
	cert, key := ca.IssueRoles(t, "operator", time.Hour, roles...)
	ports, err := store.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	l.port = ports[0]
	l.env = filepath.Join(l.dir, "env")
	systemctl, control := filepath.Join(l.dir, "systemctl"), filepath.Join(l.dir, "control.yaml")
	write := func(path, text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(systemctl, fmt.Sprintf(unitScript, l.dir, storetest.Binary(t, "3.6", "etcd"), m.DataDir, m.ClientURL, m.ClientURL), 0o700)
	write(l.env, "# mine\n"+fmt.Sprintf("ETCD_NAME=%s\nETCD_INITIAL_CLUSTER=%s=%s\nETCD_INITIAL_ADVERTISE_PEER_URLS=%s\n", m.Name, m.Name, m.PeerURL, m.PeerURL), 0o640)
	write(control, fmt.Sprintf(`
listen: {address: "127.0.0.1:%d", cert: %q, key: %q, client-ca: %q}
member:
  name: %s
  data-dir: %q
  kind: systemd
  systemd: {unit: etcd.service, systemctl: %q, environment-file: %q}
  start-timeout: 20s
state-dir: %q
repositories: [%q]
`, l.port, hostCert, hostKey, ca.CA, m.Name, m.DataDir, systemctl, l.env, filepath.Join(l.dir, "state"), "file://"+repo), 0o600)
	process := u.start(t, "agent", "control", "--config", control)
	t.Cleanup(func() {
		process.cmd.Process.Kill()
		process.wait(t)
		stop := &user{binary: systemctl, dir: l.dir, env: u.env}
		stop.run(t, "stop")
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", l.port), time.Second)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the control process does not listen")
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.known = []string{"recover", "--repo", repo, "--control-ca", ca.CA, "--control-cert", cert, "--control-key", key, "--control-port", fmt.Sprint(l.port)}
	return l
}

func (l *lostMember) has(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		got, err := l.cluster.Client(t).Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 {
			t.Errorf("%s: %v %v", key, got, err)
		}
	}
}

// Without a cluster file: hosts, name and endpoints come from the repository, the same
// command goes on although the repository knows another cluster by then, and takes it
// back. Stale flags are told, and brought in line before the member starts.
func TestRecoverFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	l := loseMember(t)
	before, err := os.ReadFile(l.env)
	if err != nil {
		t.Fatal(err)
	}
	e := l.must(t, exitOK, append(l.known, "--dry-run")...)
	state := filepath.Join(l.user.dir, ".local", "state", "requorum", "recover")
	for _, want := range []string{"flags on m1 are stale, in " + l.env + ": --initial-cluster-state (not given) → existing; --update-flags", fmt.Sprintf("127.0.0.1:%d", l.port), "PROVEN"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("%q is missing: %s", want, e)
		}
	}
	if !strings.Contains(e.stderr, state) {
		t.Errorf("where the state lies is not told: %s", e)
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("--dry-run made %s: %v", state, err)
	}

	// The same, written down.
	l.must(t, exitOK, append(l.known, "--write-config", "cluster.yaml", "--cluster", "production")...)
	path := l.path("cluster.yaml")
	cfg, err := config.Read(path)
	if err != nil || cfg.Cluster != "production" || len(cfg.Hosts) != 1 || cfg.Hosts[0].Control != fmt.Sprintf("127.0.0.1:%d", l.port) || len(cfg.Hosts[0].ClientURLs) != 1 || len(cfg.Repositories) != 1 {
		t.Errorf("%+v %v", cfg, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if e := l.must(t, exitUsage, append(l.known, "--write-config", "cluster.yaml")...); !strings.Contains(e.stderr, "is there already") {
		t.Errorf("written over: %s", e)
	}
	if e := l.must(t, exitOK, "recover", "--config", path, "--dry-run"); !strings.Contains(e.stdout, "Cluster production") {
		t.Errorf("%s", e)
	}

	// The unit does not come up: the run stops when its timeline is open already.
	broken := filepath.Join(l.dir, "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e = l.must(t, exitFailed, append(l.known, "--update-flags", "--yes")...)
	if after, err := os.ReadFile(l.env); err != nil || string(after) != strings.Replace(string(before), "\nETCD_INITIAL_ADVERTISE", "\nETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_ADVERTISE", 1) {
		t.Errorf("%v, the flags are\n%s%s", err, after, e)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	e = l.must(t, exitOK, append(l.known, "--yes")...)
	if !strings.Contains(e.stdout, "had been begun before") || !strings.Contains(e.stdout, "were brought in line") {
		t.Errorf("gone on with: %s", e)
	}
	l.has(t, "a", "b")

	e = l.must(t, exitOK, append(l.known, "--undo", "--yes")...)
	if !strings.Contains(e.stdout, l.env+" are as they were") {
		t.Errorf("undone: %s", e)
	}
	if after, err := os.ReadFile(l.env); err != nil || string(after) != string(before) {
		t.Errorf("%v, the flags are\n%s", err, after)
	}
	l.has(t, "a", "b")
}
