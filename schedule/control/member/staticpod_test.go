package member

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/store/storetest"
)

const manifestEnd = "# the end\n"

// kubelet does with a folder of manifests what the kubelet does: it reads every
// file that has no dot in front, whenever it looks, and runs one pod for each. It
// is slow, as the real one can be.
type kubelet struct {
	t       *testing.T
	folder  string
	delay   time.Duration
	command []string

	mu      sync.Mutex
	pod     *exec.Cmd
	starts  int
	faults  []string
	changes int // how often the folder was another than before
}

func (k *kubelet) run() {
	stop, done := make(chan struct{}), make(chan struct{})
	k.t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		var since time.Time
		last := ""
		for {
			select {
			case <-stop:
				k.want(false)
				return
			case <-time.After(2 * time.Millisecond):
			}
			now := k.look()
			if now != last {
				last, since = now, time.Now()
				k.mu.Lock()
				k.changes++
				k.mu.Unlock()
			}
			if time.Since(since) >= k.delay {
				k.want(now != "")
			}
		}
	}()
}

// look reads the folder; what is wrong with it is kept.
func (k *kubelet) look() (names string) {
	files, err := os.ReadDir(k.folder)
	if err != nil {
		k.fault(err.Error())
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(k.folder, f.Name()))
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil || !strings.HasSuffix(string(text), manifestEnd):
			k.fault(fmt.Sprintf("read half of %s: %q %v", f.Name(), text, err))
		}
		if names != "" {
			k.fault("two manifests: " + names + f.Name())
		}
		names += f.Name() + " "
	}
	return names
}

func (k *kubelet) fault(s string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = append(k.faults, s)
}

func (k *kubelet) want(runs bool) {
	switch {
	case runs && k.pod == nil:
		k.pod = exec.Command(k.command[0], k.command[1:]...)
		k.pod.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := k.pod.Start(); err != nil {
			k.fault(err.Error())
		}
		k.mu.Lock()
		k.starts++
		k.mu.Unlock()
	case !runs && k.pod != nil:
		_ = k.pod.Process.Signal(syscall.SIGTERM)
		_ = k.pod.Wait()
		k.pod = nil
	}
}

func (k *kubelet) told() (starts, changes int, faults []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts, k.changes, append([]string(nil), k.faults...)
}

// TestStaticPod: the manifest goes and comes back whole, once each way, however
// slow the kubelet is and however often it is asked.
func TestStaticPod(t *testing.T) {
	for name, delay := range map[string]time.Duration{"a quick kubelet": 0, "a slow kubelet": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dataDir, member := data(t)
			base := t.TempDir()
			manifest := filepath.Join(base, "manifests", "etcd.yaml")
			text := strings.Repeat("line\n", 10_000) + manifestEnd
			write(t, manifest, text, 0o600)
			// In the place of crictl: a test has no container runtime.
			crictl := filepath.Join(base, "crictl")
			write(t, crictl, `#!/bin/sh
echo '{"containers":[{"id":"c1","state":"CONTAINER_RUNNING","labels":{"io.kubernetes.container.name":"etcd","io.kubernetes.pod.namespace":"somebodys"}}]}'
`, 0o700)
			c, err := New(config.Member{Name: "m1", DataDir: dataDir, Kind: config.StaticPod, StaticPod: config.StaticPodMember{
				Manifest: manifest, AsideDir: filepath.Join(base, "aside"), CRISocket: "unix:///x", Crictl: crictl, Container: "etcd",
			}}, base)
			if err != nil {
				t.Fatal(err)
			}
			k := &kubelet{t: t, folder: filepath.Dir(manifest), delay: delay, command: []string{
				storetest.Binary(t, "3.6", "etcd"), "--data-dir=" + dataDir, "--name=" + member, "--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0",
			}}
			k.run()
			if err := c.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Start(soon(t, 30*time.Second)); err != nil {
				t.Fatal(err)
			}
			if delay > 0 {
				// One that is asked too early: the manifest is away, and the kubelet not done.
				if _, err := c.Stop(soon(t, delay/3)); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "run again") {
					t.Errorf("%v", err)
				}
			}
			for range 3 {
				if proof, err := c.Stop(soon(t, 30*time.Second)); err != nil || len(proof.Found) < 4 {
					t.Fatalf("%+v %v", proof, err)
				}
			}
			if _, err := os.Stat(manifest); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the manifest is in place: %v", err)
			}
			for range 2 {
				if err := c.Start(soon(t, 30*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(manifest); err != nil || string(got) != text {
				t.Errorf("the manifest came back otherwise: %v", err)
			}
			// At first, away, and back.
			if starts, changes, faults := k.told(); starts != 2 || changes != 3 || len(faults) > 0 {
				t.Errorf("the kubelet started %d pods, saw %d changes, and: %q", starts, changes, faults)
			}
		})
	}
}

// TestStaticPodInBetween: an attempt that was ended between the two names is gone
// on with in either direction; another manifest is not touched; a container that
// runs is no stopped member.
func TestStaticPodInBetween(t *testing.T) {
	base := t.TempDir()
	manifest, aside := filepath.Join(base, "manifests", "etcd.yaml"), filepath.Join(base, "aside", "etcd.yaml")
	write(t, manifest, "x", 0o600)
	if err := errors.Join(os.Mkdir(filepath.Dir(aside), 0o700), os.Link(manifest, aside)); err != nil {
		t.Fatal(err)
	}
	m := config.StaticPodMember{Manifest: manifest, AsideDir: filepath.Dir(aside), Container: "etcd"}
	s := newStaticPod(m, evidence{dataDir: filepath.Join(base, "data")})
	if _, err := s.Stop(soon(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	if inPlace, away, err := s.where(); inPlace || !away || err != nil {
		t.Errorf("%t %t %v", inPlace, away, err)
	}
	if err := os.Link(aside, manifest); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(soon(t, 100*time.Millisecond)); err == nil || !strings.Contains(err.Error(), "is in place") {
		t.Errorf("nothing runs the manifest: %v", err)
	}
	if inPlace, away, err := s.where(); !inPlace || away || err != nil {
		t.Errorf("%t %t %v", inPlace, away, err)
	}
	write(t, aside, "another", 0o600)
	if _, err := s.Stop(soon(t, time.Second)); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(aside); err != nil || string(text) != "another" {
		t.Errorf("%q %v", text, err)
	}
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	s.CRISocket, s.Crictl = "unix:///x", filepath.Join(base, "crictl")
	write(t, s.Crictl, `#!/bin/sh
echo '{"containers":[{"id":"c1","labels":{"io.kubernetes.container.name":"etcd","io.kubernetes.pod.namespace":"kube-system"}}]}'
`, 0o700)
	if _, err := s.Stopped(t.Context()); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "container c1") {
		t.Errorf("%v", err)
	}
	write(t, s.Crictl, "#!/bin/sh\necho no runtime >&2; exit 1\n", 0o700)
	if _, err := s.Stopped(t.Context()); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "no runtime") {
		t.Errorf("%v", err)
	}
}
