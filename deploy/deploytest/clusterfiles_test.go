package deploytest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/supervisor"
)

// clusterFile is one in deploy/recover, read strictly.
func clusterFile(t *testing.T, name string) *recovery.Config {
	t.Helper()
	c, err := recovery.ParseConfig([]byte(deployed(t, "recover", name)), name)
	require.NoError(t, err)
	if len(c.Hosts) != 3 {
		t.Errorf("%s has %d hosts", name, len(c.Hosts))
	}
	return c
}

// Each cluster file is read strictly; each host is reached by ssh.
func TestClusterFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, "deploy", "recover", "*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%q %v", files, err)
	}
	for _, path := range files {
		c := clusterFile(t, filepath.Base(path))
		if c.SigningKeyFile == "" || c.TrustFile == "" {
			t.Errorf("%s signs with %q and trusts %q", path, c.SigningKeyFile, c.TrustFile)
		}
		for _, h := range c.Hosts {
			if command := strings.Join(h.Command(), " "); !strings.HasPrefix(command, "ssh ") || !strings.HasSuffix(command, "root@"+h.Hostname()) {
				t.Errorf("%s: %s is reached by %s", path, h.Member, command)
			}
		}
	}
}

// What is said of kubeadm: the API server is stopped, everything else restarted
// after it, the kubelet at last; each by the name that its process has, with the
// manifest of that name.
func TestClusterFileOfKubeadm(t *testing.T) {
	for _, h := range clusterFile(t, "cluster-kubeadm.yaml").Hosts {
		var order []string
		for _, client := range h.Clients {
			order = append(order, client.Name)
			if client.Process != client.Name || client.Restart == (client.Name == "kube-apiserver") {
				t.Errorf("%+v", client)
			}
			if p := client.StaticPod; client.Kind == supervisor.StaticPod && (p.Manifest != "/etc/kubernetes/manifests/"+client.Name+".yaml" ||
				p.AsideDir != h.StaticPod.AsideDir || p.CRISocket != h.StaticPod.CRISocket || p.Container != client.Name) {
				t.Errorf("%+v", p)
			}
		}
		if got := strings.Join(order, " "); got != "kube-apiserver kube-controller-manager kube-scheduler kubelet" {
			t.Errorf("%s", got)
		}
	}
}
