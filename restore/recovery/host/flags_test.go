package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/restore/recovery/supervisor/kubelettest"
	"github.com/requorum/requorum/store/storetest"
)

func wantedFlags(peer string) supervisor.Flags {
	return supervisor.Flags{Name: "m1", InitialAdvertisePeerURLs: peer, InitialCluster: "m1=" + peer + ",m2=http://127.0.0.1:9", InitialClusterState: "existing", InitialClusterToken: "requorum-77"}
}

// TestFlagsOfStaticPod: flags are brought in line while the member is stopped, of a
// real etcd that the kubelet runs: it is started once with the new text, which is the
// old one but for these flags, and after the undo with the old text.
func TestFlagsOfStaticPod(t *testing.T) {
	t.Parallel()
	m, etcd := killedMember(t, "3.6")
	base := t.TempDir()
	path, aside := filepath.Join(base, "manifests", "etcd.yaml"), filepath.Join(base, "aside")
	text := kubelettest.Manifest("etcd", storetest.Binary(t, "3.6", "etcd"), "--data-dir="+m.DataDir, "--name=m1", "--listen-client-urls="+m.ClientURL,
		"--advertise-client-urls="+m.ClientURL, "--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls="+m.PeerURL, "--initial-cluster=m1="+m.PeerURL)
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o640)); err != nil {
		t.Fatal(err)
	}
	cfg := quietHost(t)
	cfg.Member = supervisor.MemberConfig{Name: "m1", DataDir: m.DataDir, Kind: supervisor.StaticPod, StopTimeout: patience, StartTimeout: patience,
		StaticPod: supervisor.StaticPodMember{Manifest: path, AsideDir: aside, Container: "etcd"}}
	k := &kubelettest.Kubelet{Folder: filepath.Dir(path)}
	k.Run(t)
	line := lineTo(t, cfg, "test")
	run := line.As(run1, "")
	if _, err := run.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	servesKey(t, etcd)
	state, err := run.Member(t.Context())
	if err != nil || state.Flags == nil || !state.Flags.Known || state.Flags.In != path || state.Flags.Flags.InitialCluster != "m1="+m.PeerURL || state.Cluster == "" {
		t.Errorf("%+v %v", state, err)
	}
	// Not while it runs: the kubelet would restart it.
	if _, err := run.Flags(t.Context(), wantedFlags(m.PeerURL)); codeOf(err) != Running {
		t.Errorf("while it runs: %v", err)
	}
	if _, err := run.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := line.As(run2, "").Flags(t.Context(), wantedFlags(m.PeerURL)); codeOf(err) != Held {
		t.Errorf("by another run: %v", err)
	}
	bad := wantedFlags(m.PeerURL)
	bad.InitialClusterToken = "x\n    - --force-new-cluster"
	if _, err := run.Flags(t.Context(), bad); codeOf(err) != BadRequest {
		t.Errorf("more than names and URLs: %v", err)
	}
	if _, err := run.SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(text, `--initial-cluster=m1=`+m.PeerURL+"\"\n", `--initial-cluster=m1=`+m.PeerURL+",m2=http://127.0.0.1:9\"\n    - \"--initial-cluster-state=existing\"\n", 1)
	if want == text {
		t.Fatal("the test changes nothing")
	}
	for range 2 { // it may be repeated, also by a process that was started anew
		done, err := run.Flags(t.Context(), wantedFlags(m.PeerURL))
		if err != nil || len(done.Flags.Changes) != 2 || done.Flags.ByHand != "" || done.Flags.Kept == "" {
			t.Fatalf("%+v %v", done, err)
		}
		expectFile(t, filepath.Join(aside, "etcd.yaml"), want, 0o640)
		expectFile(t, done.Flags.Kept, text, 0o640)
		line.Close()
		line = lineTo(t, cfg, "test")
		run = line.As(run1, "")
	}
	done, err := run.Undo(t.Context())
	if err != nil || done.Flags == nil || len(done.Warnings) > 0 {
		t.Fatalf("%+v %v", done, err)
	}
	expectFile(t, filepath.Join(aside, "etcd.yaml"), text, 0o640)
	// And once to the end: the pod runs by the new text.
	if _, err := run.Flags(t.Context(), wantedFlags(m.PeerURL)); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	servesKey(t, etcd)
	expectFile(t, path, want, 0o640)
	if starts, _, faults := k.Told(); starts["etcd"] != 2 || len(faults) > 0 {
		t.Errorf("the kubelet started %v pods, and: %q", starts, faults)
	}
	if state, err = run.Member(t.Context()); err != nil || len(state.Flags.Flags.Changes(wantedFlags(m.PeerURL))) > 0 {
		t.Errorf("%+v %v", state.Flags, err)
	}
}

func expectFile(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%s: %v, %d bytes, want %d", path, err, len(got), len(text))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
		t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, mode)
	}
}

// TestFlagsOfUnit: the environment file of a unit is edited and comes back, unless
// somebody has changed it since; what wins over it is told instead.
func TestFlagsOfUnit(t *testing.T) {
	t.Parallel()
	const peer = "http://127.0.0.1:2380"
	dir := t.TempDir()
	env, program := filepath.Join(dir, "etcd"), filepath.Join(dir, "systemctl")
	shows := func(execStart string) {
		text := "#!/bin/sh\nprintf 'MainPID=0\\nLoadState=loaded\\nActiveState=inactive\\nSubState=dead\\nEnvironmentFiles=" + env + " (ignore_errors=yes)\\nExecStart={ path=/usr/bin/etcd ; argv[]=" + execStart + " ; ignore_errors=no }\\n'\n"
		if err := storetest.WriteProgram(program, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	shows("/usr/bin/etcd")
	old := "ETCD_NAME=m1\nETCD_INITIAL_CLUSTER=m1=" + peer + "\nETCD_INITIAL_ADVERTISE_PEER_URLS=" + peer + "\n"
	if err := os.WriteFile(env, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := quietHost(t)
	m := &cfg.Member
	m.Kind, m.Command = supervisor.Systemd, supervisor.CommandMember{}
	m.Systemd = supervisor.SystemdMember{Unit: "etcd.service", Systemctl: program, EnvironmentFile: env}
	c := lineTo(t, cfg, "test").As(run1, "")
	if _, err := c.SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(old, "CLUSTER=m1="+peer+"\n", "CLUSTER=m1="+peer+",m2=http://127.0.0.1:9\nETCD_INITIAL_CLUSTER_STATE=existing\n", 1)
	if done, err := c.Flags(t.Context(), wantedFlags(peer)); err != nil || done.Flags.ByHand != "" {
		t.Fatalf("%+v %v", done, err)
	}
	expectFile(t, env, want, 0o644)
	if err := os.WriteFile(env, []byte(want+"# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if done, err := c.Undo(t.Context()); err != nil || len(done.Warnings) != 1 || !strings.Contains(done.Warnings[0], "changed or moved since") {
		t.Errorf("%+v %v", done, err)
	}
	expectFile(t, env, want+"# mine\n", 0o644)

	byHand := func() string {
		state, err := c.Member(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(state.Faults, "; ")
	}
	if w := byHand(); strings.Contains(w, "by hand") {
		t.Errorf("%q", w)
	}
	shows("/usr/bin/etcd --initial-cluster=m1=" + peer)
	if w := byHand(); !strings.Contains(w, "by hand") || !strings.Contains(w, "command line") {
		t.Errorf("%q", w)
	}
	done, err := c.Flags(t.Context(), wantedFlags(peer))
	if err != nil || !strings.Contains(done.Flags.ByHand, "command line") || len(done.Flags.Changes) == 0 {
		t.Errorf("%+v %v", done, err)
	}
	expectFile(t, env, want+"# mine\n", 0o644)
}

// TestFlagsByHand: where nobody knows what etcd is started with, that is the answer.
func TestFlagsByHand(t *testing.T) {
	t.Parallel()
	done, err := lineTo(t, quietHost(t), "test").As(run1, "").Flags(t.Context(), wantedFlags("http://127.0.0.1:2380"))
	if err != nil || done.Flags.ByHand == "" || len(done.Flags.Changes) != 4 {
		t.Errorf("%+v %v", done, err)
	}
}
