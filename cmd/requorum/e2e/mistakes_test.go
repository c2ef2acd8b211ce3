package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^( *)```sh\n(.*?)^ *```")
	beginsFrom = regexp.MustCompile(`from backup (\S+)`)
)

// mistakes are the command lines of each section of docs/kubernetes-mistakes.md.
func mistakes(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(storetest.Root(t), "docs", "kubernetes-mistakes.md"))
	require.NoError(t, err)
	all := map[string][]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		for _, block := range shellBlock.FindAllStringSubmatch(body, -1) {
			all[title] = append(all[title], block[2])
		}
	}
	return all
}

// page runs the lines of a page for one user.
type page struct {
	user  *user
	lines map[string][]string
	env   []string
	ran   map[string]bool // of the lines

	recipient string // that backups are encrypted to
}

// openPage is docs/kubernetes-mistakes.md for a user whose backups are encrypted. Each
// member has its data in the folder "etcd" of its host, and every API server's host has
// the file encryption.yaml.
func openPage(t *testing.T, u *user, repo, initialCluster string) *page {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for path, text := range map[string]string{u.Path("identity.txt"): identity.String(), u.Path("encryption.yaml"): encryptionConfiguration("before")} {
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	bin := u.Path("bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	for name, path := range map[string]string{"requorum": u.Binary, "etcdctl": storetest.Binary(t, "3.7", "etcdctl")} {
		require.NoError(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	return &page{user: u, lines: mistakes(t), ran: map[string]bool{}, recipient: identity.Recipient().String(), env: []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "REQUORUM_REPO=" + repo, "REQUORUM_IDENTITY=" + u.Path("identity.txt"),
		"CLUSTER=" + initialCluster, "DATA=" + u.Path("etcd"), "NAME=m1",
	}}
}

// agent is one beside the first member, which keeps encryption.yaml with each full snapshot.
func (p *page) agent(t *testing.T, c *storetest.Cluster, repo string) *agent {
	t.Helper()
	return p.user.agent(t, c, 0, repo, fmt.Sprintf(`
encryption: {recipients: [%s]}
attachments: [%s]
jobs: {structure: {run: off}, merge: {run: off}}
`, p.recipient, p.user.Path("encryption.yaml")))
}

// backup is the one that a look said the restore would begin from.
func (p *page) backup(t *testing.T, look string) {
	t.Helper()
	found := beginsFrom.FindStringSubmatch(look)
	if found == nil {
		t.Fatalf("it names no backup:\n%s", look)
	}
	p.env = append(p.env, "BACKUP="+found[1])
}

// run wants the n-th block of a section to end with 0, and its output to say all of
// these.
func (p *page) run(t *testing.T, section string, n int, says ...string) (out string) {
	t.Helper()
	if n >= len(p.lines[section]) {
		t.Fatalf("%q has %d blocks of commands", section, len(p.lines[section]))
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", p.lines[section][n])
	cmd.Dir, cmd.Env = p.user.Dir, append(append([]string{}, p.user.Env...), p.env...)
	data, err := cmd.CombinedOutput()
	if out = string(data); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", section, err, p.lines[section][n], out)
	}
	p.ran[p.lines[section][n]] = true
	for _, text := range says {
		if !strings.Contains(out, text) {
			t.Errorf("%s: no %q in\n%s", section, text, out)
		}
	}
	return out
}

// look runs a block that writes a new plan, and changes nothing else.
func (p *page) look(t *testing.T, section string, n int, says ...string) (out string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(p.user.Path("plan.json")))
	return p.run(t, section, n, append(says, "Nothing was changed.")...)
}

// ranAll wants every line of the page to have been run.
func (p *page) ranAll(t *testing.T) {
	t.Helper()
	for section, blocks := range p.lines {
		for _, block := range blocks {
			if !p.ran[block] {
				t.Errorf("%s: it was not run: %s", section, block)
			}
		}
	}
}

// TestKubernetesMistakes makes each mistake of docs/kubernetes-mistakes.md in a real
// etcd, with the writes that an API server makes for it, and runs every line of the
// page. What is restored in the end has the namespace with all that was in it.
func TestKubernetesMistakes(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	p := openPage(t, u, repo, storetest.InitialCluster(t, names(3)...))
	put := func(key, value string) {
		_, err := c.Client(t).Put(t.Context(), key, value)
		require.NoError(t, err)
	}
	remove := func(prefix string) {
		all, err := c.Client(t).Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || len(all.Kvs) == 0 {
			t.Fatalf("%d keys below %s, %v", len(all.Kvs), prefix, err)
		}
		for _, kv := range all.Kvs {
			_, err = c.Client(t).Delete(t.Context(), string(kv.Key))
			require.NoError(t, err)
		}
	}
	const (
		namespace = "/registry/namespaces/shop"
		crd       = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
		living    = `{"metadata":{"name":"x"}}`
		marked    = `{"metadata":{"name":"x","deletionTimestamp":"2026-01-02T15:04:05Z"}}`
	)
	put(namespace, living)
	put(crd, living)
	for i := range 30 {
		put(fmt.Sprintf("/registry/pods/shop/pod-%d", i), living)
		put(fmt.Sprintf("/registry/example.com/widgets/default/w-%d", i), living)
		put(fmt.Sprintf("/registry/deployments/default/d-%d", i), living)
		put(fmt.Sprintf("/registry/secrets/default/s-%d", i), "k8s:enc:aescbc:v1:old:x")
	}
	a := p.agent(t, c, repo)
	u.awaitArchived(t, repo, 1)
	p.env = append(p.env, "ETCDCTL_ENDPOINTS="+c.Endpoints()[0], "TIME="+time.Now().Format(time.RFC3339Nano))

	put(crd, marked)
	remove("/registry/example.com/widgets/")
	remove(crd)
	for i := range 30 {
		put(fmt.Sprintf("/registry/deployments/default/d-%d", i), `{"metadata":{"name":"rewritten"}}`)
		put(fmt.Sprintf("/registry/secrets/default/s-%d", i), "k8s:enc:aescbc:v1:lost:x")
	}
	put(namespace, marked)
	remove("/registry/pods/shop/")
	remove(namespace)
	put("/registry/configmaps/default/later", living)
	put("compact_rev_key", "1")
	u.awaitArchived(t, repo, applied(t, c, 0))

	p.run(t, "First, whatever it was", 0, "recoverable  revision")
	// As the page has it, in the directories of members that run.
	running := u.Must(t, exitOK, "restore", "--repo", repo, "--identity", u.Path("identity.txt"), "--before", namespace, "--dry-run", "--plan", u.Path("running.json"), "--initial-cluster", storetest.InitialCluster(t, "m1"), "--data-dir", c.Member(0).DataDir)
	for _, want := range []string{"note: before the restore: member m1: " + c.Member(0).DataDir + " exists already", "stop the etcd that runs on it"} {
		if !strings.Contains(running.Stdout, want) {
			t.Errorf("no %q: %s", want, running)
		}
	}
	p.look(t, "A CRD is gone", 0, "31 keys were deleted", "/registry/example.com/widgets/default/w-0")
	p.look(t, "A bad controller rewrote everything", 0, "30 keys were changed")
	p.look(t, "A bad controller rewrote everything", 1)
	const secrets = "Secrets were re-encrypted with a lost key"
	p.run(t, secrets, 0, "encryption.yaml")
	p.backup(t, p.look(t, secrets, 1, "30 keys were changed"))
	p.run(t, secrets, 2, "encryption.yaml")
	p.look(t, "Somebody deleted a namespace", 0, "31 keys were deleted", "given up as well: 2 other changes", "not yet the key compact_rev_key",
		"All writes after the point are given up, 34 in all, among them those that it takes back:\n        30  pods in shop\n         2  namespaces\n         1  compact_rev_key\n         1  configmaps in default\n")
	p.run(t, "Back to the point", 0, "--data-dir", "not yet the key compact_rev_key")
	latest := u.Run(t, "restore", "--repo", repo, "--identity", u.Path("identity.txt"), "--latest", "--to-snapshot", u.Path("latest.db"))
	if latest.Code != exitOK || strings.Contains(latest.Stdout+latest.Stderr, "compact_rev_key") {
		t.Errorf("at the end of the log the key is there: %s", latest)
	}
	keys, err := newestKeys(u.Path("etcd", "member", "snap", "db"))
	require.NoError(t, err)
	pods := 0
	for key := range keys {
		if strings.HasPrefix(key, "/registry/pods/shop/") {
			pods++
		}
	}
	if pods != 30 || keys[namespace].Value != living || keys["/registry/configmaps/default/later"].Key != "" {
		t.Errorf("%d pods and namespace %q came back", pods, keys[namespace].Value)
	}
	a.stop(t)

	full := storetest.Start(t, storetest.Options{Version: "3.7", ExtraArgs: []string{"--quota-backend-bytes=4194304"}})
	p.env = append(p.env, "ETCDCTL_ENDPOINTS="+full.Endpoints()[0])
	for i := 0; ; i++ {
		if _, err := full.Client(t).Put(t.Context(), "/registry/events/default/e", strings.Repeat("x", 100<<10)); err != nil {
			if !strings.Contains(err.Error(), "database space exceeded") {
				t.Fatal(err)
			}
			break
		}
		if i == 1000 {
			t.Fatal("it is never full")
		}
	}
	p.run(t, "etcd is full", 0, "NOSPACE", "Finished defragmenting")
	p.run(t, "etcd is full", 1, "1 events")
	_, err = full.Client(t).Put(t.Context(), "/registry/events/default/e", "x")
	require.NoError(t, err, "it is still full")
	p.ranAll(t)
}
