package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// agentWorld is what the agents of these tests are configured for.
type agentWorld struct {
	dir                    string // readable by all
	plain, other, tls, aut *storetest.Cluster
	minority               *storetest.Cluster // two of three members are down
	s3, rclone             *sinktest.S3Server
	skewed                 *sinktest.FaultProxy // before s3: its objects are of yesterday
	identity, stranger     *age.X25519Identity
	identityFile           string
	strangerFile           string
	encrypted, unencrypted string // repositories with a backup
	authority              *storetest.Authority
}

func newAgentWorld(t *testing.T) *agentWorld {
	t.Helper()
	dir, err := os.MkdirTemp("", "requorum-doctor-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	w := &agentWorld{dir: dir, authority: storetest.NewAuthority(t)}
	w.plain = storetest.Start(t, storetest.Options{Version: "3.7"})
	w.other = storetest.Start(t, storetest.Options{Version: "3.6"})
	w.tls = storetest.Start(t, storetest.Options{Version: "3.7", TLS: true})
	w.aut = storetest.Start(t, storetest.Options{Version: "3.6", Auth: true})
	w.minority = storetest.Start(t, storetest.Options{Version: "3.5", Members: 3})
	w.minority.Kill(1)
	w.minority.Kill(2)
	putSome(t, w.plain, "/some/", 50)
	admin := w.aut.Client(t)
	_, err = admin.UserAdd(t.Context(), "reader", "reader-password")
	require.NoError(t, err)

	w.s3 = sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "good"}, {Name: "readonly"}, {Name: "keep"}}})
	w.s3.AddUser(t, "reading", "reading-secret", "readonly", "s3:GetObject", "s3:ListBucket")
	w.s3.AddUser(t, "keeping", "keeping-secret", "keep", "s3:GetObject", "s3:PutObject", "s3:ListBucket")
	if !testing.Short() {
		w.rclone = sinktest.StartRclone(t)
		w.rclone.MakeBucket(t, sinktest.S3Bucket{Name: "good"})
	}
	w.skewed = sinktest.NewFaultProxy(t, w.s3.Endpoint, sinktest.ProxyFault{
		Name: "times of yesterday", Times: -1, Match: func(r *http.Request) bool { return r.Method == http.MethodHead },
		Do: sinktest.Answer(func(resp *http.Response) {
			if modified, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
				resp.Header.Set("Last-Modified", modified.Add(-24*time.Hour).Format(http.TimeFormat))
			}
		}),
	})

	w.identity, w.identityFile = w.newIdentity(t, "identity.txt")
	w.stranger, w.strangerFile = w.newIdentity(t, "stranger.txt")
	w.encrypted, w.unencrypted = "file://"+filepath.Join(dir, "encrypted"), "file://"+filepath.Join(dir, "unencrypted")
	w.backup(t, w.encrypted, "--recipient", w.identity.Recipient().String())
	w.backup(t, w.unencrypted)
	return w
}

func (w *agentWorld) newIdentity(t *testing.T, name string) (*age.X25519Identity, string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return identity, w.write(t, name, identity.String()+"\n", 0o600)
}

func (w *agentWorld) write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(w.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func (w *agentWorld) backup(t *testing.T, repo string, more ...string) {
	t.Helper()
	args := append([]string{"backup", "--endpoints", w.plain.Endpoints()[0], "--repo", repo}, more...)
	if e := run(t, args...); e.Code != exitOK {
		t.Fatal(e)
	}
}

// keys are keys of the configuration, such as "jobs.full.run"; nil takes one out.
type keys map[string]any

// config writes the configuration of an agent in which nothing is wrong, changed.
func (w *agentWorld) config(t *testing.T, change keys) string {
	t.Helper()
	all := map[string]any{}
	set := func(key string, value any) {
		at, parts := all, strings.Split(key, ".")
		for _, p := range parts[:len(parts)-1] {
			next, ok := at[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[p] = next
			}
			at = next
		}
		last := parts[len(parts)-1]
		if at[last] = value; value == nil {
			delete(at, last)
		}
	}
	for key, value := range (keys{
		"name": "m1", "etcd.endpoints": w.plain.Endpoints(), "member.data-dir": w.plain.Member(0).DataDir,
		"repository.url": "file://" + filepath.Join(t.TempDir(), "repo"), "repository.retry-for": "1s",
		"archive.spool-dir": filepath.Join(w.dir, "spool"), "archive.spool-limit": "64MiB",
		"resources.scratch-dir": w.dir, "listen.address": storetest.FreeAddress(t),
	}) {
		set(key, value)
	}
	for key, value := range change {
		set(key, value)
	}
	text, err := yaml.Marshal(all)
	require.NoError(t, err)
	return w.write(t, "agent.yaml", string(text), 0o644)
}

// doctor examines a configuration, as the test's user or as one who owns no file.
func (w *agentWorld) doctor(t *testing.T, file string, nobody bool) (doctorReport, ended) {
	t.Helper()
	e := (&storetest.Operator{Binary: storetest.Requorum(t), Nobody: nobody}).Run(t, "doctor", "--agent-config", file, "--output", "json")
	r := decode[doctorReport](t, e)
	if want := map[bool]int{true: exitOK, false: exitFailed}[r.OK]; e.Code != want {
		t.Errorf("exit code %d, want %d: %s", e.Code, want, e)
	}
	return r, e
}

func (w *agentWorld) tlsKeys(more keys) keys {
	cfg := w.tls.ClientConfig()
	all := keys{"etcd.endpoints": cfg.Endpoints, "etcd.cacert": cfg.CACert, "etcd.cert": cfg.Cert, "etcd.key": cfg.Key, "member.data-dir": w.tls.Member(0).DataDir}
	for k, v := range more {
		all[k] = v
	}
	return all
}

func (w *agentWorld) authKeys(t *testing.T, user, password string, more keys) keys {
	all := keys{"etcd.endpoints": w.aut.Endpoints(), "member.data-dir": w.aut.Member(0).DataDir, "etcd.user": user,
		"etcd.password-file": w.write(t, "password-"+user+password[:3], password+"\n", 0o600)}
	for k, v := range more {
		all[k] = v
	}
	return all
}
