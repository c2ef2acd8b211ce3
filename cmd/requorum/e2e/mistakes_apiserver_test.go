package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// apiServer is a real kube-apiserver, under way, and its administrator.
type apiServer struct {
	*storetest.Process
	url    string
	client *http.Client
}

// startAPIServer starts it on a cluster, with an EncryptionConfiguration. It is killed with
// the test.
func startAPIServer(t *testing.T, c *storetest.Cluster, encryption string) *apiServer {
	t.Helper()
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "apiserver", time.Hour)
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	require.NoError(t, os.WriteFile(tokens, []byte("token,admin,1,system:masters\n"), 0o600))
	address := storetest.FreeAddress(t)
	s := &apiServer{
		url:    "https://" + address,
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Trusted()}}},
	}
	cmd := exec.Command(apiServerBinary(t), //nolint:gosec // built from the sources that this repository pins
		"--etcd-servers="+strings.Join(c.Endpoints(), ","), "--encryption-provider-config="+encryption,
		"--bind-address=127.0.0.1", "--secure-port="+address[strings.LastIndexByte(address, ':')+1:],
		"--tls-cert-file="+cert, "--tls-private-key-file="+key,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", // which takes no loopback address
		"--token-auth-file="+tokens, "--anonymous-auth=false", "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount") // which waits for what a controller makes
	var err error
	s.Process, err = storetest.StartProcess(cmd, tokens+".log")
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	return s
}

// ready waits until it is.
func (s *apiServer) ready(t *testing.T) {
	t.Helper()
	storetest.Eventually(t, "the API server is ready", func() error {
		code, answer := s.do(t, "GET", "/readyz", "")
		if code == http.StatusOK {
			return nil
		}
		if !s.Running() {
			t.Fatalf("the API server has ended:\n%s", storetest.Tail(s.Log, 30))
		}
		return fmt.Errorf("%d %s\n%s", code, answer, storetest.Tail(s.Log, 30))
	})
}

// apiServerBinary is built for the long form only, as it takes minutes.
func apiServerBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(storetest.Root(t), ".cache", "bin", "kube-apiserver")
	_, err := os.Stat(path)
	needs(t, err == nil, "the API server of Kubernetes is not built: run .tools/build kube-apiserver (it takes minutes)")
	return path
}

// stop is SIGTERM.
func (s *apiServer) stop() { s.Stop(2 * time.Minute) } // it gives requests one

// do is one request; code 0 where nothing answers.
func (s *apiServer) do(t *testing.T, method, path, body string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer token")
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(data)
}

// must wants a request to be granted. One that etcd refuses, for which a leader is
// elected, is made again; 404 and 409 say then that it was granted before.
func (s *apiServer) must(t *testing.T, method, path, body string) (answer string) {
	t.Helper()
	again := false
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		code, answer := s.do(t, method, path, body)
		switch {
		case code/100 == 2, again && method == "POST" && code == http.StatusConflict, again && method == "DELETE" && code == http.StatusNotFound:
			return answer
		case code < 500 || time.Now().After(deadline):
			t.Fatalf("%s %s: %d %s", method, path, code, answer)
		}
		again = true
	}
}

// kubeObjects are what is in the namespace shop, by the path that lists them.
var kubeObjects = []struct{ api, resource, fields string }{
	{"/api/v1", "configmaps", `"data": {"a": "b"}`},
	{"/api/v1", "secrets", `"stringData": {"password": "secret"}`},
	{"/api/v1", "services", `"spec": {"ports": [{"port": 80}]}`},
	{"/api/v1", "pods", `"spec": {"containers": [{"name": "c", "image": "i"}]}`},
	{"/apis/apps/v1", "deployments", `"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}`},
	{"/apis/example.com/v1", "widgets", `"spec": {"size": 3}`},
}

const (
	each        = 5 // of each kind
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	widgets     = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
		"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`
)

// create makes the namespace, the definition, and objects of each kind.
func (s *apiServer) create(t *testing.T) {
	t.Helper()
	s.must(t, "POST", "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	s.must(t, "POST", definitions, widgets)
	for _, o := range kubeObjects {
		path := o.api + "/namespaces/shop/" + o.resource
		storetest.Eventually(t, path+" is served", func() error {
			if code, answer := s.do(t, "GET", path, ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
		kind := ""
		if o.resource == "widgets" { // of what is built in it is known
			kind = `"apiVersion": "example.com/v1", "kind": "Widget", `
		}
		for i := range each {
			s.must(t, "POST", path, fmt.Sprintf(`{%s"metadata": {"name": "o-%d"}, %s}`, kind, i, o.fields))
		}
	}
}

// items are the objects of each kind, as the API server serves them.
func (s *apiServer) items(t *testing.T) (map[string]string, error) {
	t.Helper()
	all := map[string]string{}
	for _, o := range kubeObjects {
		path := o.api + "/namespaces/shop/" + o.resource
		code, answer := s.do(t, "GET", path, "")
		var list struct{ Items []json.RawMessage }
		if code != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %d %s", path, code, answer)
		}
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			return nil, fmt.Errorf("GET %s: %w", path, err)
		}
		if len(list.Items) != each {
			return nil, fmt.Errorf("GET %s: %d objects, want %d", path, len(list.Items), each)
		}
		data, err := json.Marshal(list.Items)
		if err != nil {
			return nil, err
		}
		all[path] = string(data)
	}
	return all, nil
}

// rewrite puts each object of a kind again, changed.
func (s *apiServer) rewrite(t *testing.T, path string, change func(object string) string) {
	t.Helper()
	for i := range each {
		object := fmt.Sprintf("%s/o-%d", path, i)
		s.must(t, "PUT", object, change(s.must(t, "GET", object, "")))
	}
}

// deleteNamespace deletes the namespace shop as the controller of namespaces does.
func (s *apiServer) deleteNamespace(t *testing.T) {
	t.Helper()
	const namespace = "/api/v1/namespaces/shop"
	s.must(t, "DELETE", namespace, "")
	for _, o := range kubeObjects {
		for i := range each {
			s.must(t, "DELETE", fmt.Sprintf("%s/namespaces/shop/%s/o-%d", o.api, o.resource, i), "")
		}
	}
	s.must(t, "PUT", namespace+"/finalize", `{"metadata": {"name": "shop"}, "spec": {"finalizers": []}}`)
	s.gone(t, namespace)
}

// gone waits until an object is there no more.
func (s *apiServer) gone(t *testing.T, path string) {
	t.Helper()
	storetest.Eventually(t, path+" is gone", func() error {
		if code, answer := s.do(t, "GET", path, ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
}

// encryptionConfiguration encrypts secrets with the first of these keys, and decrypts with all.
func encryptionConfiguration(keys ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
	for _, key := range keys {
		text += fmt.Sprintf("  - aescbc: {keys: [{name: %s, secret: %s}]}\n", key, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(key[:1], 32))))
	}
	return text
}

// kubernetes is three members, an API server and an agent, which end for a restore and
// start again on what it built.
type kubernetes struct {
	*page
	repo, initialCluster string
	encryption           string // EncryptionConfiguration

	etcd      *storetest.Cluster
	api       *apiServer
	timelines int
	timeline  repository.TimelineID // of this etcd
}

func (k *kubernetes) start(t *testing.T) {
	t.Helper()
	dirs := map[string]string{}
	for _, name := range names(3) {
		dirs[name] = k.user.Path(name)
	}
	k.etcd = storetest.StartFromDataDirs(t, "3.7", dirs, k.initialCluster)
	k.api = startAPIServer(t, k.etcd, k.encryption)
	k.api.ready(t)
}

// archived waits until all that etcd has now can be restored.
func (k *kubernetes) archived(t *testing.T) {
	t.Helper()
	index := applied(t, k.etcd, 0)
	storetest.Eventually(t, fmt.Sprintf("index %d of timeline %s is archived", index, k.timeline), func() error {
		ranges := k.user.list(t, k.repo).Ranges
		if !slices.ContainsFunc(ranges, func(r walreplay.Range) bool { return r.Timeline == k.timeline && !r.Gap && r.LastIndex >= index }) {
			return fmt.Errorf("%+v", ranges)
		}
		return nil
	})
}

// encrypt starts the API server again with these keys.
func (k *kubernetes) encrypt(t *testing.T, keys ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte(encryptionConfiguration(keys...)), 0o600))
	k.api.stop()
	k.api = startAPIServer(t, k.etcd, path)
}

// undo makes a mistake, looks, and goes back to the point: then every object is as it was,
// and what was written after it is not there.
func (k *kubernetes) undo(t *testing.T, mistake, look func()) {
	t.Helper()
	a := k.agent(t, k.etcd, k.repo)
	k.timelines++
	all := k.user.awaitTimelines(t, k.repo, k.timelines)
	k.timeline = slices.MaxFunc(all, func(a, b repository.Timeline) int { return a.Created.Compare(b.Created) }).ID
	k.archived(t)
	k.env = append(k.env, "TIME="+time.Now().Format(time.RFC3339Nano))
	want, err := k.api.items(t)
	require.NoError(t, err)
	mistake()
	if got, err := k.api.items(t); err == nil && maps.Equal(got, want) {
		t.Fatal("the mistake changed nothing")
	}
	k.api.must(t, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata": {"name": "later"}}`)
	k.archived(t)
	k.run(t, "First, whatever it was", 0, "recoverable  revision")
	look()

	a.stop(t)
	k.api.stop()
	k.etcd.StopAll()
	for _, name := range names(3) { // each on its host
		require.NoError(t, os.Rename(k.user.Path(name), k.user.Path("etcd")))
		k.env = append(k.env, "NAME="+name)
		k.run(t, "Back to the point", 0, "set aside", "--name="+name)
		require.NoError(t, os.Rename(k.user.Path("etcd"), k.user.Path(name)))
	}
	k.start(t)
	storetest.Eventually(t, "every object is as it was", func() error {
		got, err := k.api.items(t)
		if err != nil {
			return err
		}
		for path := range want {
			if got[path] != want[path] {
				return fmt.Errorf("%s is\n%s\nand was\n%s", path, got[path], want[path])
			}
		}
		return nil
	})
	k.api.gone(t, "/api/v1/namespaces/default/configmaps/later")
}

// TestKubernetesMistakesAtAnAPIServer makes each mistake of docs/kubernetes-mistakes.md at a
// real API server and runs every line of the page for it. In the end that API server serves
// each object as it was.
func TestKubernetesMistakesAtAnAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("TestKubernetesMistakes makes them in etcd")
	}
	apiServerBinary(t)
	t.Parallel() // much of it waits
	u := newUser(t)
	repo, initialCluster := "file://"+u.Path("repo"), storetest.InitialCluster(t, names(3)...)
	k := &kubernetes{page: openPage(t, u, repo, initialCluster), repo: repo, initialCluster: initialCluster, encryption: u.Path("encryption.yaml")}
	k.start(t)
	k.api.create(t)

	k.undo(t, func() { k.api.deleteNamespace(t) }, func() {
		k.look(t, "Somebody deleted a namespace", 0, fmt.Sprintf("%d keys were deleted", len(kubeObjects)*each+1), "given up as well")
	})
	k.undo(t, func() {
		k.api.must(t, "DELETE", definitions+"/widgets.example.com", "")
		k.api.gone(t, definitions+"/widgets.example.com")
	}, func() {
		k.look(t, "A CRD is gone", 0, fmt.Sprintf("%d keys were deleted", each+1))
	})
	k.undo(t, func() {
		k.api.rewrite(t, "/apis/apps/v1/namespaces/shop/deployments", func(d string) string { return strings.ReplaceAll(d, `"image":"i"`, `"image":"bad"`) })
	}, func() {
		k.look(t, "A bad controller rewrote everything", 1)
		k.look(t, "A bad controller rewrote everything", 0, fmt.Sprintf("%d keys were changed", each))
	})
	k.undo(t, func() {
		require.NoError(t, os.Remove(k.encryption))
		const secrets = "/api/v1/namespaces/shop/secrets"
		k.encrypt(t, "lost", "before")
		k.api.ready(t)
		k.api.rewrite(t, secrets, func(s string) string { return s })
		k.encrypt(t, "before") // it is never ready
		storetest.Eventually(t, "secrets cannot be decrypted", func() error {
			if code, answer := k.api.do(t, "GET", secrets, ""); !strings.Contains(answer, "no matching key was found") {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	}, func() {
		const section = "Secrets were re-encrypted with a lost key"
		k.run(t, section, 0, "encryption.yaml")
		k.backup(t, k.look(t, section, 1, fmt.Sprintf("%d keys were changed", each)))
		k.run(t, section, 2, "encryption.yaml")
		k.encryption = filepath.Join(u.Path("before"), u.Path("encryption.yaml"))
	})
	k.fill(t)
	k.ranAll(t)
}

// fill fills another etcd: with the history of one object, and then with objects.
func (k *kubernetes) fill(t *testing.T) {
	t.Helper()
	const (
		section = "etcd is full"
		path    = "/api/v1/namespaces/default/configmaps"
	)
	k.etcd = storetest.Start(t, storetest.Options{Version: "3.7", ExtraArgs: []string{"--quota-backend-bytes=16777216"}})
	k.api.stop()
	k.api = startAPIServer(t, k.etcd, k.encryption)
	k.api.ready(t)
	k.env = append(k.env, "ETCDCTL_ENDPOINTS="+k.etcd.Endpoints()[0])
	// until puts until etcd is full, and gives how often that was possible.
	until := func(method string, name func(i int) string) (n int) {
		for ; n < 1000; n++ {
			body := fmt.Sprintf(`{"metadata": {"name": %q}, "data": {"a": "%d%s"}}`, name(n), n, strings.Repeat("x", 900_000))
			at := path
			if method == "PUT" {
				at += "/" + name(n)
			}
			switch code, answer := k.api.do(t, method, at, body); {
			case strings.Contains(answer, "database space exceeded"):
				return n
			case code/100 != 2:
				t.Fatalf("%s %s: %d %s", method, at, code, answer)
			}
		}
		t.Fatal("it is never full")
		return 0
	}
	k.api.must(t, "POST", path, `{"metadata": {"name": "one"}}`)
	until("PUT", func(int) string { return "one" })
	k.run(t, section, 0, "NOSPACE", "Finished defragmenting")
	k.api.must(t, "PUT", path+"/one", `{"metadata": {"name": "one"}}`)

	many := until("POST", func(i int) string { return fmt.Sprintf("many-%d", i) })
	k.run(t, section, 0, "NOSPACE", "Finished defragmenting")
	var list struct{ Items []json.RawMessage } // "one", and the API server's own, too
	if err := json.Unmarshal([]byte(k.api.must(t, "GET", "/api/v1/configmaps", "")), &list); err != nil || len(list.Items) <= many {
		t.Fatalf("%d configmaps: %v", len(list.Items), err)
	}
	k.run(t, section, 1, fmt.Sprintf("%d configmaps", len(list.Items)))
	more := until("POST", func(i int) string { return fmt.Sprintf("more-%d", i) })
	if more >= many {
		t.Errorf("%d objects filled it, and %d more were taken after it was compacted", many, more)
	}
	for i := range many {
		k.api.must(t, "DELETE", fmt.Sprintf("%s/many-%d", path, i), "")
	}
	k.run(t, section, 0, "NOSPACE", "Finished defragmenting")
	if n := until("POST", func(i int) string { return fmt.Sprintf("again-%d", i) }); n < many/2 {
		t.Errorf("%d objects were deleted, and %d new ones fill it", many, n)
	}
}
