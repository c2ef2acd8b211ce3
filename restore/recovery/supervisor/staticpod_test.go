package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/supervisor/kubelettest"
	"github.com/requorum/requorum/store/storetest"
)

// pod is a client of one mode in the hands of a kubelet.
type clientPod struct {
	*staticPod
	kubelet *kubelettest.Kubelet
	exe     string
	text    string
}

// newPod gives one that runs already. Without cri there is no runtime to ask.
func newPod(t *testing.T, mode string, cri bool, k *kubelettest.Kubelet) *clientPod {
	t.Helper()
	base, exe := t.TempDir(), program(t, mode)
	name := filepath.Base(exe)
	manifest := filepath.Join(base, "manifests", name+".yaml")
	p := &clientPod{kubelet: k, exe: exe, text: kubelettest.Manifest(name, exe, "client", mode)}
	write(t, manifest, p.text, 0o600)
	c := StaticPodMember{Manifest: manifest, AsideDir: filepath.Join(base, "aside"), Container: name}
	k.Folder = filepath.Dir(manifest)
	if cri {
		k.CRI = t.TempDir()
		c.CRISocket, c.Crictl = "unix:///x", k.Crictl(t)
	}
	p.staticPod = newStaticPod(c, evidence{process: name})
	p.looks = 1200 * time.Millisecond // for a kubelet that is as much quicker
	k.Run(t)
	if err := p.Start(soon(t, 20*time.Second)); err != nil && mode != "crashing" {
		t.Fatal(err)
	}
	ready(t, exe)
	return p
}

// expect wants these starts, and a kubelet that never read anything but the whole
// manifest or none, as many times as said.
func (p *clientPod) expect(t *testing.T, starts, changes int) {
	t.Helper()
	s, c, faults := p.kubelet.Seen()
	if n := s[p.process]; n != starts || c != changes || len(faults) > 0 {
		t.Errorf("the kubelet started %v, want %d; saw %d changes, want %d; and: %q", s, starts, c, changes, faults)
	}
	if text, err := os.ReadFile(p.manifest.Path); err != nil || string(text) != p.text {
		t.Errorf("the manifest is not what it was: %v", err)
	}
}

// TestStaticPod (promises 1 and 2): a client that ends at once, one with requests
// under way and one that ignores SIGTERM, under a quick and under a slow kubelet,
// with and without a container runtime to ask: the proof comes after the process is
// gone, and the manifest moves once each way, however often it is asked.
func TestStaticPod(t *testing.T) {
	for name, c := range map[string]struct {
		mode string
		cri  bool
		k    *kubelettest.Kubelet
	}{
		"quick":              {"quick", true, &kubelettest.Kubelet{}},
		"without a runtime":  {"quick", false, &kubelettest.Kubelet{}},
		"requests under way": {"busy", true, &kubelettest.Kubelet{}},
		"ignores SIGTERM":    {"deaf", true, &kubelettest.Kubelet{Grace: 2 * time.Second}},
		"a slow kubelet":     {"busy", true, &kubelettest.Kubelet{Delay: 700 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, c.mode, c.cri, c.k)
			require.NoError(t, p.Check(t.Context()))
			if wanted, err := p.Wanted(t.Context()); err != nil || !wanted {
				t.Fatal(wanted, err)
			}
			if c.mode != "quick" || !c.cri {
				hold := p.exe + ".hold"
				write(t, hold, "", 0o600)
				looks := p.looks
				p.looks = time.Hour // without a runtime time alone is the proof: it has not passed, however slow the machine is
				require.ErrorContains(t, p.Stop(soon(t, 300*time.Millisecond)), "run again", "it was not waited for")
				p.looks = looks
				require.NoError(t, os.Remove(hold))
			}
			for range 3 {
				require.NoError(t, p.Stop(soon(t, 20*time.Second)))
			}
			require.NoError(t, p.Stopped(t.Context()))
			if wanted, err := p.Wanted(t.Context()); err != nil || wanted {
				t.Error(wanted, err)
			}
			for range 2 {
				require.NoError(t, p.Start(soon(t, 20*time.Second)))
			}
			p.expect(t, 2, 3)
			require.NoError(t, p.Restart(soon(t, 20*time.Second)))
			p.expect(t, 3, 5)
		})
	}
}

// TestStaticPodThatCrashes (promise 1): an API server whose store is gone crashes
// again and again, and is between two lives most of the time: no process is no proof
// before the kubelet has taken the pod down, or must have looked.
func TestStaticPodThatCrashes(t *testing.T) {
	for name, cri := range map[string]bool{"with a runtime": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The kubelet notices late, and goes on starting meanwhile.
			k := &kubelettest.Kubelet{Delay: 700 * time.Millisecond, Backoff: 200 * time.Millisecond}
			p := newPod(t, "crashing", cri, k)
			for started := 0; started < 2; time.Sleep(10 * time.Millisecond) {
				s, _, _ := k.Seen()
				started = s[p.process]
			}
			if wanted, err := p.Wanted(t.Context()); err != nil || !wanted {
				t.Fatal(wanted, err)
			}
			// Also where it does not run this very moment.
			for range 100 {
				require.ErrorIs(t, p.Stopped(t.Context()), ErrRuns)
			}
			require.NoError(t, p.Stop(soon(t, 20*time.Second)))
			before, _, _ := k.Seen()
			time.Sleep(700 * time.Millisecond)
			if after, _, _ := k.Seen(); after[p.process] != before[p.process] {
				t.Errorf("it was started after the proof: %d times, then %d", before[p.process], after[p.process])
			}
		})
	}
}

// TestStaticPodCopies: a copy in the manifest folder, under any name, would be run
// in the manifest's place; it is found before anything is moved, and afterwards it
// is no proof that the manifest is away.
func TestStaticPodCopies(t *testing.T) {
	base := t.TempDir()
	folder := filepath.Join(base, "manifests")
	text := kubelettest.Manifest("kube-apiserver", "/bin/true")
	c := StaticPodMember{Manifest: filepath.Join(folder, "kube-apiserver.yaml"), AsideDir: filepath.Join(base, "aside"), Container: "kube-apiserver"}
	p := newStaticPod(c, evidence{process: "no-such-program"})
	p.looks = 0
	write(t, c.Manifest, text, 0o600)
	write(t, filepath.Join(folder, "etcd.yaml"), kubelettest.Manifest("etcd", "/bin/true"), 0o600)
	write(t, filepath.Join(folder, ".kube-apiserver.yaml.swp"), text, 0o600)
	write(t, filepath.Join(folder, "notes"), "no manifest\n\tat all", 0o600)
	write(t, filepath.Join(folder, "sub", "kube-apiserver.yaml"), text, 0o600)
	require.NoError(t, p.Check(t.Context()), "what the kubelet does not run")
	for _, name := range []string{"kube-apiserver.yaml.bak", "kube-apiserver", "old.2024"} {
		path := filepath.Join(folder, name)
		write(t, path, text, 0o600)
		for what, err := range map[string]error{"check": p.Check(t.Context()), "stop": p.Stop(soon(t, time.Second))} {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "every file") {
				t.Errorf("%s beside %s: %v", what, name, err)
			}
		}
		if in, err := p.inPlace(); err != nil || !in {
			t.Fatalf("%s: it was moved: %v", name, err)
		}
		require.NoError(t, os.Remove(path))
	}
	require.NoError(t, p.Stop(soon(t, 5*time.Second)))
	write(t, filepath.Join(folder, "restored"), text, 0o600)
	if err := p.Stopped(t.Context()); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "restored") {
		t.Errorf("%v", err)
	}
	// Also where the manifest itself is gone from both places.
	require.NoError(t, os.Remove(p.manifest.Aside()))
	if err := p.Stopped(t.Context()); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "restored") {
		t.Errorf("%v", err)
	}
}

// TestStaticPodThatIsNotThere: one whose manifest somebody took away did not run; it
// is proved so, and not started.
func TestStaticPodThatIsNotThere(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(base, "manifests"), 0o700))
	c := StaticPodMember{Manifest: filepath.Join(base, "manifests", "a.yaml"), AsideDir: filepath.Join(base, "aside"), Container: "a"}
	p := newStaticPod(c, evidence{process: "no-such-program"})
	p.looks = time.Second
	if wanted, err := p.Wanted(t.Context()); err != nil || wanted {
		t.Error(wanted, err)
	}
	if err := p.Stopped(t.Context()); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "cri-socket") {
		t.Errorf("at once: %v", err)
	}
	require.NoError(t, p.Stop(soon(t, 5*time.Second)))
	require.ErrorIs(t, p.Start(soon(t, time.Second)), os.ErrNotExist)
	// A clock that was set back does not make the proof wait for it.
	future := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Dir(c.Manifest), future, future))
	require.NoError(t, p.Stopped(t.Context()))
	// A runtime that cannot be asked is no proof.
	p.runtime.Socket, p.runtime.Crictl = "unix:///x", filepath.Join(base, "crictl")
	write(t, p.runtime.Crictl, "#!/bin/sh\necho no runtime >&2; exit 1\n", 0o700)
	if err := p.Stopped(t.Context()); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "no runtime") {
		t.Errorf("%v", err)
	}
}

// TestAlive (promise 3): a pod counts until the kubelet has taken it down, whether
// its container runs at the moment or not; those of other namespaces and of other
// names don't, and a runtime that cannot be asked is an error.
func TestAlive(t *testing.T) {
	container := func(id, sandbox, name, namespace string) string {
		return `{"id":"` + id + `","podSandboxId":"` + sandbox + `","labels":{"io.kubernetes.container.name":"` + name + `","io.kubernetes.pod.namespace":"` + namespace + `"}}`
	}
	dir := t.TempDir()
	r := containerRuntime{Crictl: filepath.Join(dir, "crictl"), Socket: "unix:///run/containerd/containerd.sock", Container: "kube-apiserver"}
	answer := func(ps, pods string) {
		t.Helper()
		text := "#!/bin/sh\ntest \"$1 $2\" = '--runtime-endpoint unix:///run/containerd/containerd.sock' || exit 1\ncase $3 in\nps) echo '{\"containers\":[" + ps + "]}' ;;\npods) echo '{\"items\":[" + pods + "]}' ;;\nesac\n"
		require.NoError(t, storetest.WriteProgram(r.Crictl, []byte(text), 0o700))
	}
	ours, others := container("c1", "p1", "kube-apiserver", namespace), container("c2", "p2", "kube-apiserver", "somebodys")+","+container("c3", "p3", "etcd", namespace)
	const ready = `{"id":"p1","state":"SANDBOX_READY"},{"id":"p2","state":"SANDBOX_READY"},{"id":"p3","state":"SANDBOX_READY"}`
	for _, c := range []struct {
		ps, pods, want string
		known          bool
	}{
		{ours + "," + others, ready, "p1", true},
		{ours + "," + container("c9", "p1", "kube-apiserver", namespace), ready, "p1", true}, // two lives of it
		{ours, `{"id":"p1","state":"SANDBOX_NOTREADY"}`, "", true},
		{ours, "", "", true}, // the sandbox is removed, the container not yet
		{others, ready, "", false},
		{"", "", "", false},
	} {
		answer(c.ps, c.pods)
		pods, known, err := r.Alive(t.Context())
		if err != nil || known != c.known || strings.Join(pods, " ") != c.want {
			t.Errorf("%s, %s: %q %t %v", c.ps, c.pods, pods, known, err)
		}
	}
	for _, text := range []string{"exit 1", "echo no JSON"} {
		require.NoError(t, storetest.WriteProgram(r.Crictl, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		_, _, err := r.Alive(t.Context())
		require.Error(t, err, "%s: no error", text)
	}
	if ids, err := (containerRuntime{}).Running(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("without a runtime: %q %v", ids, err)
	}
}
