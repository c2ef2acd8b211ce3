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

// TestMemberPod: the manifest goes and comes back whole, once each way, however
// slow the kubelet is and however often it is asked.
func TestMemberPod(t *testing.T) {
	for name, delay := range map[string]time.Duration{"a quick kubelet": 0, "a slow kubelet": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dataDir, member := data(t)
			base := t.TempDir()
			manifest := filepath.Join(base, "manifests", "etcd.yaml")
			text := kubelettest.Manifest("etcd", storetest.Binary(t, "3.6", "etcd"), "--data-dir="+dataDir, "--name="+member,
				"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0")
			write(t, manifest, text, 0o600)
			// In the place of crictl: a test has no container runtime.
			crictl := filepath.Join(base, "crictl")
			write(t, crictl, `#!/bin/sh
echo '{"containers":[{"id":"c1","state":"CONTAINER_RUNNING","labels":{"io.kubernetes.container.name":"etcd","io.kubernetes.pod.namespace":"somebodys"}}]}'
`, 0o700)
			c, err := NewMember(MemberConfig{Name: "m1", DataDir: dataDir, ServiceConfig: ServiceConfig{Kind: StaticPod, StaticPod: StaticPodMember{
				Manifest: manifest, AsideDir: filepath.Join(base, "aside"), CRISocket: "unix:///x", Crictl: crictl, Container: "etcd",
			}}}, base)
			require.NoError(t, err)
			k := &kubelettest.Kubelet{Folder: filepath.Dir(manifest), Delay: delay}
			k.Run(t)
			require.NoError(t, c.Check(t.Context()))
			require.NoError(t, c.Start(soon(t, 30*time.Second)))
			if delay > 0 {
				// One that is asked too early: the manifest is away, and the kubelet not done.
				k.Held.Store(true)
				if err := c.Stop(soon(t, delay/3)); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "run again") {
					t.Errorf("%v", err)
				}
				k.Held.Store(false)
			}
			for range 3 {
				require.NoError(t, c.Stop(soon(t, 30*time.Second)))
			}
			if _, err := os.Stat(manifest); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the manifest is in place: %v", err)
			}
			for range 2 {
				require.NoError(t, c.Start(soon(t, 30*time.Second)))
			}
			if got, err := os.ReadFile(manifest); err != nil || string(got) != text {
				t.Errorf("the manifest came back otherwise: %v", err)
			}
			// At first, away, and back.
			if starts, changes, faults := k.Seen(); starts["etcd"] != 2 || changes != 3 || len(faults) > 0 {
				t.Errorf("the kubelet started %v pods, saw %d changes, and: %q", starts, changes, faults)
			}
		})
	}
}

// TestMemberPodInBetween: an attempt that was ended between the two names is gone
// on with in either direction; another manifest is not touched; a container that
// runs is no stopped member.
func TestMemberPodInBetween(t *testing.T) {
	base := t.TempDir()
	manifest, aside := filepath.Join(base, "manifests", "etcd.yaml"), filepath.Join(base, "aside", "etcd.yaml")
	write(t, manifest, "x", 0o600)
	require.NoError(t, errors.Join(os.Mkdir(filepath.Dir(aside), 0o700), os.Link(manifest, aside)))
	m := StaticPodMember{Manifest: manifest, AsideDir: filepath.Dir(aside), Container: "etcd"}
	s := newStaticPod(m, evidence{dataDir: filepath.Join(base, "data")})
	require.NoError(t, s.Stop(soon(t, 10*time.Second)))
	if inPlace, away, err := s.manifest.Where(); inPlace || !away || err != nil {
		t.Errorf("%t %t %v", inPlace, away, err)
	}
	require.NoError(t, os.Link(aside, manifest))
	require.ErrorContains(t, s.Start(soon(t, 100*time.Millisecond)), "is in place", "nothing runs the manifest")
	if inPlace, away, err := s.manifest.Where(); !inPlace || away || err != nil {
		t.Errorf("%t %t %v", inPlace, away, err)
	}
	write(t, aside, "another", 0o600)
	require.ErrorContains(t, s.Stop(soon(t, time.Second)), "another one")
	if text, err := os.ReadFile(aside); err != nil || string(text) != "another" {
		t.Errorf("%q %v", text, err)
	}
	require.NoError(t, os.Remove(manifest))
	s.runtime.Socket, s.runtime.Crictl = "unix:///x", filepath.Join(base, "crictl")
	write(t, s.runtime.Crictl, `#!/bin/sh
echo '{"containers":[{"id":"c1","labels":{"io.kubernetes.container.name":"etcd","io.kubernetes.pod.namespace":"kube-system"}}]}'
`, 0o700)
	if err := s.Stopped(t.Context()); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "container c1") {
		t.Errorf("%v", err)
	}
	write(t, s.runtime.Crictl, "#!/bin/sh\necho no runtime >&2; exit 1\n", 0o700)
	if err := s.Stopped(t.Context()); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "no runtime") {
		t.Errorf("%v", err)
	}
}
