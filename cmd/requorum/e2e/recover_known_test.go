package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
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
	printf 'MainPID=%%s\nLoadState=loaded\nActiveState=%%s\nSubState=x\nExecStart={ path=/usr/bin/etcd ; argv[]=/usr/bin/etcd --x=y ; ignore_errors=no }\n' $pid $state ;;
reset-failed) rm -f $dir/failed ;;
start)
	test -f $dir/broken && { touch $dir/failed; exit 0; }
	set -a; . $dir/env; set +a
	setsid %s --data-dir=%q --listen-client-urls=%s --advertise-client-urls=%s --listen-peer-urls=http://127.0.0.1:0 >$dir/log 2>&1 &
	echo $! >$dir/pid ;;
stop) running && kill $(cat $dir/pid) && while running; do sleep 0.05; done; exit 0 ;;
*) exit 1 ;;
esac
`

// lostMember is a cluster of one with a backup, whose member was killed, and whose host
// has a unit for it.
type lostMember struct {
	*user
	cluster  *storetest.Cluster
	dir, env string
	known    []string // the command with the cluster file
}

// Where there are archived keys, these are put last, and the log is archived.
func loseMember(t *testing.T, archived ...string) *lostMember {
	t.Helper()
	u := newUser(t)
	l := &lostMember{user: u, cluster: storetest.Start(t, storetest.Options{Version: "3.6"}), dir: t.TempDir()}
	m := l.cluster.Member(0)
	put := func(key string) {
		_, err := l.cluster.Client(t).Put(t.Context(), key, "value")
		require.NoError(t, err)
	}
	put("a")
	repo := u.Path("repo")
	u.Must(t, exitOK, "backup", "--repo", repo, "--endpoints", m.ClientURL)
	put("b")
	for _, key := range archived {
		put(key)
	}
	if len(archived) > 0 {
		u.Must(t, exitOK, "agent", "--once", "--data-dir", m.DataDir, "--endpoints", m.ClientURL, "--repo", repo)
	}
	l.cluster.Kill(0)

	l.env = filepath.Join(l.dir, "env")
	systemctl, file := filepath.Join(l.dir, "systemctl"), u.Path("production.yaml")
	write := func(path, text string, mode os.FileMode) {
		if err := storetest.WriteProgram(path, []byte(text), mode); err != nil { // one of them is
			t.Fatal(err)
		}
	}
	write(systemctl, fmt.Sprintf(unitScript, l.dir, storetest.Binary(t, "3.6", "etcd"), m.DataDir, m.ClientURL, m.ClientURL), 0o700)
	write(l.env, "# mine\n"+fmt.Sprintf("ETCD_NAME=%s\nETCD_INITIAL_CLUSTER=%s=%s\nETCD_INITIAL_ADVERTISE_PEER_URLS=%s\n", m.Name, m.Name, m.PeerURL, m.PeerURL), 0o640)
	write(file, fmt.Sprintf(`
cluster: production
repositories: [%q]
defaults: {run: env, requorum: %q, state-dir: %q, kind: systemd, start-timeout: 20s}
hosts:
  - member: %s
    client-urls: [%q]
    data-dir: %q
    systemd: {unit: etcd.service, systemctl: %q}
`, "file://"+repo, u.Binary, filepath.Join(l.dir, "state"), m.Name, m.ClientURL, m.DataDir, systemctl), 0o600)
	t.Cleanup(func() {
		stop := &storetest.Operator{Binary: systemctl, Dir: l.dir, Env: u.Env}
		stop.Run(t, "stop")
	})
	l.known = []string{"recover", "--config", file}
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

// With `requorum host` run by a command that is no ssh: the same command goes on where it
// was, and takes it back. The files that a unit reads stay as they are. A cluster file is written from what the repository knows.
func TestRecoverThroughACommand(t *testing.T) {
	t.Parallel()
	l := loseMember(t)
	before, err := os.ReadFile(l.env)
	require.NoError(t, err)
	e := l.Must(t, exitOK, append(l.known, "--dry-run")...)
	if !strings.Contains(e.Stdout, "PROVEN") {
		t.Errorf("it would not be proven: %s", e)
	}

	// One is written from the repository, and from the data directory.
	m := l.cluster.Member(0)
	write := []string{"recover", "--write-config", "cluster.yaml", "--repo", l.Path("repo")}
	l.Must(t, exitOK, write...)
	path := l.Path("cluster.yaml")
	cfg, err := recovery.ReadConfig(path)
	if err != nil || cfg.Cluster == "" || len(cfg.Hosts) != 1 || cfg.Hosts[0].Member != m.Name || len(cfg.Hosts[0].ClientURLs) != 1 || len(cfg.Hosts[0].PeerURLs) != 1 || len(cfg.Repositories) != 1 {
		t.Errorf("%+v %v", cfg, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if e := l.Must(t, exitUsage, write...); !strings.Contains(e.Stderr, "is there already") {
		t.Errorf("written over: %s", e)
	}
	l.Must(t, exitOK, "recover", "--write-config", "local.yaml", "--local", m.Name+"="+m.DataDir)
	local, err := recovery.ReadConfig(l.Path("local.yaml"))
	if err != nil || local.Cluster != cfg.Cluster || local.Hosts[0].Member != m.Name || local.Hosts[0].PeerURLs[0] != m.PeerURL {
		t.Errorf("%+v %v", local, err)
	}
	l.Must(t, exitFailed, "recover", "--write-config", "none.yaml", "--repo", l.Path("nothing"))

	// The unit does not come up: the run stops when its timeline is open already.
	broken := filepath.Join(l.dir, "broken")
	require.NoError(t, os.WriteFile(broken, nil, 0o600))
	l.Must(t, exitFailed, append(l.known, "--yes")...)
	require.NoError(t, os.Remove(broken))
	e = l.Must(t, exitOK, append(l.known, "--yes")...)
	if !strings.Contains(e.Stdout, "had been begun before") {
		t.Errorf("gone on with: %s", e)
	}
	l.has(t, "a", "b")

	l.Must(t, exitOK, append(l.known, "--undo", "--yes")...)
	if after, err := os.ReadFile(l.env); err != nil || string(after) != string(before) {
		t.Errorf("%v, the flags are\n%s", err, after)
	}
	l.has(t, "a", "b")
}

// What is given up is shown by kind and namespace before one says yes, as `restore` does:
// across hosts by the archive, on this machine by the members' logs as well.
func TestRecoverShowsWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	l := loseMember(t, "/registry/configmaps/shop/a", "/registry/pods/shop/x", "/registry/pods/shop/y")
	m := l.cluster.Member(0)
	ranges := l.list(t, l.Path("repo")).Ranges
	end := ranges[len(ranges)-1].LastIndex
	local := []string{"recover", "--local", m.Name + "=" + m.DataDir, "--data-dir", dataDirs(l.Path("new"))}
	for name, args := range map[string][]string{
		"hosts": l.known, "a member": local, "a member and the archive": append(slices.Clone(local), "--repo", l.Path("repo")),
	} {
		e := l.Run(t, append(slices.Clone(args), "--dry-run", "--index", fmt.Sprint(end-3))...)
		require.Contains(t, e.Stdout, "All writes after the point are given up, 3 in all:\n         2  pods in shop\n         1  configmaps in shop\n", "%s: %s", name, e)
		e = l.Must(t, exitOK, append(slices.Clone(args), "--dry-run")...)
		require.NotContains(t, e.Stdout, "given up", "%s: %s", name, e)
		e = l.Run(t, append(slices.Clone(args), "--dry-run", "--before", "/registry/pods/shop/x")...)
		require.Contains(t, e.String(), "not all that is given up is counted: only the rebuild finds the point just before", "%s: %s", name, e)
	}
}
