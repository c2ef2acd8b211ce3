package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvidenceOfEachKind (promise 1): where its supervisor says that it is stopped, a
// member of each kind is not while a process has a lock on its files, or writes to them
// without one, and a client of each kind is not while a process has its name.
func TestEvidenceOfEachKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("systemctl"), "#!/bin/sh\nprintf 'LoadState=loaded\\nActiveState=inactive\\nSubState=dead\\nMainPID=0\\n'\n", 0o700)
	write(t, path("status"), "#!/bin/sh\nexit 3\n", 0o700)
	write(t, path("aside/x.yaml"), "x", 0o600)
	require.NoError(t, os.Mkdir(path("manifests"), 0o700))
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path("manifests"), long, long)) // the kubelet has looked since
	unit := SystemdMember{Unit: "x.service", Systemctl: path("systemctl")}
	pod := StaticPodMember{Manifest: path("manifests/x.yaml"), AsideDir: path("aside"), Container: "x"}
	command := CommandMember{Status: []string{path("status")}}

	db := path("data/member/snap/db")
	write(t, db, "", 0o600)
	members, clients := map[Kind]Member{}, map[Kind]Service{}
	for _, kind := range kinds {
		of := ServiceConfig{Kind: kind, Systemd: unit, StaticPod: pod, Command: command}
		m, err := NewMember(MemberConfig{Name: "m1", DataDir: path("data"), ServiceConfig: of}, dir)
		require.NoError(t, err)
		require.NoError(t, m.Stopped(t.Context()), kind)
		members[kind] = m
		c, err := newService(of, evidence{process: "requorum-kinds"}, path("log"))
		require.NoError(t, err)
		require.NoError(t, c.Stopped(t.Context()), kind)
		clients[kind] = c
	}
	f, err := os.OpenFile(db, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	for kind, m := range members {
		err := m.Stopped(t.Context())
		require.ErrorIs(t, err, ErrRuns, kind)
		require.ErrorContains(t, err, "in use", "%s: this process does not count, its lock does", kind)
	}
	require.NoError(t, f.Close())
	writer := exec.Command("/bin/sh", "-c", "exec 3<>"+db+"; echo; read x")
	_, err = writer.StdinPipe()
	require.NoError(t, err)
	out, err := writer.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, writer.Start())
	t.Cleanup(func() { _ = writer.Process.Kill(); _ = writer.Wait() })
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	for kind, m := range members {
		err := m.Stopped(t.Context())
		require.ErrorIs(t, err, ErrRuns, kind)
		require.ErrorContains(t, err, "writes to "+db, kind)
	}
	sleeper(t, copied(t, "requorum-kinds"), "")
	for kind, c := range clients {
		err := c.Stopped(t.Context())
		require.ErrorIs(t, err, ErrRuns, kind)
		require.ErrorContains(t, err, "requorum-kinds", kind)
	}
}
