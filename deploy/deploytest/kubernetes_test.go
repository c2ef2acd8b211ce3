package deploytest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/storetest"
)

// The manifests are what the API server takes, and each container is confined:
// no token, no capability, no writable root, bounded memory, no root but where it
// has to be, and roles for nobody.
func TestManifests(t *testing.T) {
	for _, path := range [][]string{{"snapshots"}, {"sidecar"}, {"static-pod", "requorum-agent.yaml"}} {
		t.Run(path[0], func(t *testing.T) {
			all := manifests(t, path...)
			policies := 0
			for _, o := range all {
				switch o.Kind {
				case "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret":
					t.Errorf("there is a %s", o.Kind)
				case "NetworkPolicy":
					policies++
				case "ServiceAccount":
					expectFalse(t, o.Metadata.Name+": automountServiceAccountToken", o.AutomountServiceAccountToken)
				}
				if p := o.pod(); p != nil {
					expectConfined(t, o, p)
				}
			}
			if path[0] != "static-pod" && policies == 0 {
				t.Error("there is no NetworkPolicy")
			}
			workloads(t, all)
		})
	}
}

func expectFalse(t testing.TB, what string, value *bool) {
	t.Helper()
	if value == nil || *value {
		t.Errorf("%s is not false", what)
	}
}

func expectConfined(t *testing.T, o *object, p *podSpec) {
	t.Helper()
	expectFalse(t, "automountServiceAccountToken", p.AutomountServiceAccountToken)
	if p.SecurityContext.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("seccompProfile: %s", p.SecurityContext.SeccompProfile.Type)
	}
	user := p.SecurityContext.RunAsUser
	if static := o.Kind == "Pod"; user == nil || !static && (!p.SecurityContext.RunAsNonRoot || *user == 0) {
		t.Errorf("%s %s may run as root", o.Kind, o.Metadata.Name)
	}
	for _, c := range p.Containers {
		require.NoError(t, pinned(c.Image), "%s %s", o.Kind, o.Metadata.Name)
		s := c.SecurityContext
		expectFalse(t, c.Name+": allowPrivilegeEscalation", s.AllowPrivilegeEscalation)
		if !s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s: %+v", c.Name, s)
		}
		if c.Resources.Limits["memory"] == "" || c.Resources.Requests["memory"] == "" {
			t.Errorf("%s: memory is not bounded", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" {
				t.Errorf("%s: %s is mounted alone, so a rotation is not seen", c.Name, m.SubPath)
			}
		}
	}
	for _, v := range p.Volumes {
		if v.HostPath == nil {
			continue
		}
		if o.Kind != "Pod" || !slices.Contains(ofHost, *v.HostPath) {
			t.Errorf("%s %s mounts %+v of its host", o.Kind, o.Metadata.Name, *v.HostPath)
		}
	}
}

// ofHost is all that the static pod may see of its host: not /etc/requorum, where
// other programs keep keys, and of etcd's certificates only those that it shows.
var ofHost = []hostPath{
	{"/etc/requorum/agent", "Directory"}, {"/var/lib/etcd", "Directory"}, {"/var/lib/requorum", "DirectoryOrCreate"},
	{"/etc/kubernetes/pki/etcd/ca.crt", "File"},
	{"/etc/kubernetes/pki/etcd/healthcheck-client.crt", "File"}, {"/etc/kubernetes/pki/etcd/healthcheck-client.key", "File"},
}

var digest = regexp.MustCompile(`^[^@:]+@sha256:([0-9a-f]{64}|IMAGE-DIGEST|ETCD-DIGEST)$`)

// pinned refuses an image that is not named by its digest, or by a placeholder that
// no registry takes for one.
func pinned(image string) error {
	if !digest.MatchString(image) {
		return fmt.Errorf("the image %q is not named by its digest", image)
	}
	return nil
}

// Nothing in deploy and docs fetches what a tag or a branch names today.
func TestPinned(t *testing.T) {
	for image, ok := range map[string]bool{
		"requorum": false, "requorum:latest": false, "requorum:1.0.0": false, "r/requorum@sha256:12": false,
		"r/requorum:1.0.0@sha256:" + strings.Repeat("0a", 32): false, // a tag that nobody holds to
		"r/requorum@sha256:" + strings.Repeat("0a", 32):       true,
	} {
		if err := pinned(image); (err == nil) != ok {
			t.Errorf("%s: %v", image, err)
		}
	}
	floating := regexp.MustCompile(`@latest\b|:latest\b|VERSION: latest|uses: [^@\s]+@(v[0-9.]+|main|master)\s|image: [a-z/.]+:[^@\s]+\s`)
	for text, found := range map[string]bool{"go install x@latest\n": true, "uses: a/b@v4\n": true, "image: golang:1.26\n": true, "uses: a/b@0123456789012345678901234567890123456789 # v4\n": false} {
		if floating.MatchString(text) != found {
			t.Errorf("%q", text)
		}
	}
	for _, dir := range []string{"deploy", "docs"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".yml", ".yaml", ".md", ""}, filepath.Ext(path)) {
				return err
			}
			data, err := os.ReadFile(path)
			for _, found := range floating.FindAllString(string(data), -1) {
				t.Errorf("%s: %q", path, found)
			}
			return err
		})
		require.NoError(t, err)
	}
}

// embedded is the agent's configuration in a folder of deploy/kubernetes.
func embedded(t testing.TB, folder string, w *workload) string {
	t.Helper()
	text := deployed(t, "kubernetes", folder, "agent.yaml")
	if folder != "sidecar" {
		return text
	}
	for _, o := range manifests(t, folder) {
		if o.Kind == "ConfigMap" && o.Data["agent.yaml"] != "" {
			if o.Data["agent.yaml"] != text {
				t.Error("the ConfigMap holds another configuration")
			}
			return text
		}
	}
	t.Fatalf("%s gets no configuration", w.container.Name)
	return ""
}

// Agents in pods: their configuration is accepted, and fits the pod: the probes'
// port, the folders that are mounted, memory, the time to end. The member's
// files are mounted for reading alone, and nothing takes a port of etcd's.
func TestAgentPods(t *testing.T) {
	for folder, file := range map[string][]string{"static-pod": {"static-pod", "requorum-agent.yaml"}, "sidecar": {"sidecar"}} {
		t.Run(folder, func(t *testing.T) {
			for _, w := range workloads(t, manifests(t, file...)) {
				p := w.object.pod()
				if time.Duration(p.TerminationGracePeriodSeconds)*time.Second <= schedule.Grace {
					t.Errorf("terminationGracePeriodSeconds: %d", p.TerminationGracePeriodSeconds)
				}
				expectRoom(t, w.container.Resources.Limits["memory"])
				text := replaced(t, embedded(t, folder, w), "AGE-RECIPIENT", recipient(t, t.TempDir()))
				c, err := config.ParseWith([]byte(text), "agent.yaml", func(name string) string { return w.env[name] })
				require.NoError(t, err)
				expectProbes(t, w, c)
				expectMounted(t, w, c)
			}
		})
	}
}

func expectProbes(t *testing.T, w *workload, c *config.Config) {
	t.Helper()
	host, port, err := net.SplitHostPort(c.Listen.Address)
	require.NoError(t, err)
	if slices.Contains([]string{"2379", "2380", "2381", "2382"}, port) {
		t.Errorf("port %s is etcd's", port)
	}
	live, ready := w.container.LivenessProbe, w.container.ReadinessProbe
	if live == nil || live.HTTPGet.Path != "/healthz" {
		t.Fatalf("liveness: %+v", live)
	}
	// An etcd must not be taken for down because its backup is.
	if (ready != nil) != (w.object.Kind == "Pod") {
		t.Errorf("readiness: %+v", ready)
	}
	for _, p := range []*probe{live, ready} {
		if p == nil {
			continue
		}
		if strconv.Itoa(p.HTTPGet.Port) != port || (p.HTTPGet.Scheme == "HTTPS") != (c.Listen.Cert != "") {
			t.Errorf("%+v, and the agent listens on %s", p.HTTPGet, c.Listen.Address)
		}
		// The kubelet asks the pod's address, unless another one is named.
		if addr := netip.MustParseAddr(host); addr.IsLoopback() && (!w.object.pod().HostNetwork || p.HTTPGet.Host != host) {
			t.Errorf("%+v does not reach %s", p.HTTPGet, c.Listen.Address)
		}
	}
}

// Whatever is deployed signs what it stores and trusts named keys, from files that its pod
// mounts; and each CronJob signs with a key of its own.
func TestDeployedKeys(t *testing.T) {
	for _, path := range [][]string{{"kubernetes", "static-pod", "agent.yaml"}, {"kubernetes", "sidecar", "agent.yaml"}, {"systemd", "agent.yaml"}, {"systemd", "verifier.yaml"}, {"systemd", "pruner.yaml"}} {
		text := deployed(t, path...)
		if strings.Contains(text, "[AGE-RECIPIENT]") {
			text = replaced(t, text, "AGE-RECIPIENT", recipient(t, t.TempDir()))
		}
		c, err := config.Parse([]byte(text), path[len(path)-1])
		require.NoError(t, err)
		if c.Repository.SigningKeyFile == "" || c.Repository.TrustFile == "" {
			t.Errorf("%v: %+v", path, c.Repository)
		}
	}
	jobs, of := cronJobs(t), map[string]string{}
	if len(jobs) != 3 {
		t.Errorf("there are %d jobs", len(jobs))
	}
	for name, w := range jobs {
		for _, setting := range []string{"REQUORUM_SIGNING_KEY", "REQUORUM_TRUST"} {
			if !slices.ContainsFunc(w.container.VolumeMounts, func(m mount) bool { return m.ReadOnly && filepath.Dir(w.env[setting]) == m.MountPath }) {
				t.Errorf("%s: %s=%s is not mounted: %+v", name, setting, w.env[setting], w.container.VolumeMounts)
			}
		}
		for _, v := range w.object.pod().Volumes {
			if v.Name != "keys" {
				continue
			}
			if other, taken := of[v.Secret.SecretName]; taken || v.Secret.SecretName == "" {
				t.Errorf("%s and %s sign with Secret %q", name, other, v.Secret.SecretName)
			}
			of[v.Secret.SecretName] = name
		}
	}
	if len(of) != len(jobs) {
		t.Errorf("Secrets with keys: %v", of)
	}
}

// A signing key in a Secret is root's, and readable by the pod's group: the pod's user may
// take it, and one that everybody can read is refused.
func TestKeyInSecret(t *testing.T) {
	needs(t, os.Getuid() == 0, "to make files of another group takes root")
	dir, err := os.MkdirTemp("", "requorum-secret-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	key := filepath.Join(dir, "signing.key")
	trust := write(t, filepath.Join(dir, "trust"), signer(t, key))
	binary, err := os.ReadFile(storetest.Requorum(t))
	require.NoError(t, err)
	program := filepath.Join(dir, "requorum")
	require.NoError(t, os.WriteFile(program, binary, 0o755))
	const group = 2390
	require.NoError(t, os.Chown(key, 0, group))
	for mode, want := range map[os.FileMode]string{0o440: "no repository", 0o444: "chmod 600", 0o640: "no repository", 0o660: "chmod 600", 0o400: "permission denied"} {
		require.NoError(t, os.Chmod(key, mode))
		e := run(t, []string{"REQUORUM_SIGNING_KEY=" + key, "REQUORUM_TRUST=" + trust}, "setpriv", "--reuid", "2390", "--regid", strconv.Itoa(group), "--clear-groups", program, "list", "--repo", "file://"+filepath.Join(dir, "none"))
		if e.code == 0 || !strings.Contains(e.text, want) {
			t.Errorf("%04o: exit code %d, %s", mode, e.code, e.text)
		}
	}
}

// expectMounted wants every file that the configuration names to be in a folder
// that is mounted, as it is needed.
func expectMounted(t *testing.T, w *workload, c *config.Config) {
	t.Helper()
	writable := func(path string) (found, may bool) {
		for _, m := range w.container.VolumeMounts {
			if path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/") {
				found, may = true, !m.ReadOnly
			}
		}
		return found, may
	}
	for path, want := range map[string]bool{
		c.Member.DataDir: false, c.Archive.SpoolDir: true, c.Resources.ScratchDir: true,
		c.Repository.SigningKeyFile: false, c.Repository.TrustFile: false,
		c.Etcd.CACert: false, c.Etcd.Cert: false, c.Etcd.Key: false, c.Listen.Cert: false, c.Listen.Key: false,
		w.container.Args[len(w.container.Args)-1]: false, w.env["AWS_SHARED_CREDENTIALS_FILE"]: false, w.env["STATE_DIRECTORY"]: true,
	} {
		if found, may := writable(path); path != "" && (!found || may != want) {
			t.Errorf("%s: mounted %v, writable %v, want %v", path, found, may, want)
		}
	}
}

// The static pod's command line works beside a member with kubeadm's certificates
// whose files are root's alone: with root's number and none of its capabilities.
// Without that number it says what it cannot read.
func TestStaticPodRuns(t *testing.T) {
	t.Parallel()
	needs(t, os.Getuid() == 0, "to give up root's capabilities takes root")
	c := storetest.Start(t, storetest.Options{Version: "3.6", TLS: true})
	w := workloads(t, manifests(t, "static-pod", "requorum-agent.yaml"))["agent"]
	if user := w.object.Spec.SecurityContext.RunAsUser; user == nil || *user != 0 {
		t.Fatalf("the static pod runs as %v", user)
	}
	dir := t.TempDir()
	repo := "file://" + filepath.Join(dir, "repo")
	address := storetest.FreeAddress(t)
	client := c.ClientConfig()
	configuration := write(t, filepath.Join(dir, "requorum", "agent.yaml"), replaced(t, deployed(t, "kubernetes", "static-pod", "agent.yaml"),
		"'https://127.0.0.1:2379'", c.Endpoints()[0],
		"/etc/kubernetes/pki/etcd/ca.crt", client.CACert,
		"/etc/kubernetes/pki/etcd/healthcheck-client.crt", client.Cert,
		"/etc/kubernetes/pki/etcd/healthcheck-client.key", client.Key,
		"/var/lib/etcd", c.Member(0).DataDir,
		"s3://BUCKET/PREFIX?region=eu-central-1", repo,
		"/etc/requorum/agent/signing.key", filepath.Join(dir, "signing.key"),
		"/etc/requorum/agent/trust", write(t, filepath.Join(dir, "trust"), signer(t, filepath.Join(dir, "signing.key"))),
		"AGE-RECIPIENT", recipient(t, dir),
		"/var/lib/requorum", filepath.Join(dir, "state"))+"\nlisten: {address: '"+address+"'}\n")
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o755); err != nil { // as the kubelet makes it
		t.Fatal(err)
	}
	for _, path := range []string{c.Member(0).DataDir, filepath.Join(c.Member(0).DataDir, "member")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	line := append([]string{storetest.Requorum(t)}, w.container.Args...)
	line[len(line)-1] = configuration
	env := []string{"STATE_DIRECTORY=" + filepath.Join(dir, "state"), "REQUORUM_IDENTITY=" + filepath.Join(dir, "identity.txt")}
	expectWorking(t, c, configuration, repo, address, env, append(unprivileged, line...)...)

	nobody := []string{"setpriv", "--reuid", "2390", "--regid", "2390", "--clear-groups"}
	if e := run(t, nil, nobody[0], append(nobody[1:], storetest.Requorum(t), "agent", "--once", "--data-dir", c.Member(0).DataDir, "--spool-dir", "/tmp/none", "--repo", "file:///tmp/none")...); e.code == 0 || !strings.Contains(e.text, "permission denied") {
		t.Errorf("another user: exit code %d\n%s", e.code, e.text)
	}
}
