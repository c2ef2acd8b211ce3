package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAlive (promise 3): a pod counts until the kubelet has taken it down, whether
// its container runs at the moment or not; those of other namespaces and of other
// names don't, and a runtime that cannot be asked is an error.
func TestAlive(t *testing.T) {
	container := func(id, sandbox, name, namespace string) string {
		return `{"id":"` + id + `","podSandboxId":"` + sandbox + `","labels":{"io.kubernetes.container.name":"` + name + `","io.kubernetes.pod.namespace":"` + namespace + `"}}`
	}
	dir := t.TempDir()
	r := Runtime{Crictl: filepath.Join(dir, "crictl"), Socket: "unix:///run/containerd/containerd.sock", Container: "kube-apiserver"}
	answer := func(ps, pods string) {
		t.Helper()
		text := "#!/bin/sh\ntest \"$1 $2\" = '--runtime-endpoint unix:///run/containerd/containerd.sock' || exit 1\ncase $3 in\nps) echo '{\"containers\":[" + ps + "]}' ;;\npods) echo '{\"items\":[" + pods + "]}' ;;\nesac\n"
		if err := os.WriteFile(r.Crictl, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ours, others := container("c1", "p1", "kube-apiserver", Namespace), container("c2", "p2", "kube-apiserver", "somebodys")+","+container("c3", "p3", "etcd", Namespace)
	const ready = `{"id":"p1","state":"SANDBOX_READY"},{"id":"p2","state":"SANDBOX_READY"},{"id":"p3","state":"SANDBOX_READY"}`
	for _, c := range []struct {
		ps, pods, want string
		known          bool
	}{
		{ours + "," + others, ready, "p1", true},
		{ours + "," + container("c9", "p1", "kube-apiserver", Namespace), ready, "p1", true}, // two lives of it
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
		if err := os.WriteFile(r.Crictl, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Alive(t.Context()); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	if ids, err := (Runtime{}).Running(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("without a runtime: %q %v", ids, err)
	}
}
