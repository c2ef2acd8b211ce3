package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
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
	if _, err := admin.UserAdd(t.Context(), "reader", "reader-password"); err != nil {
		t.Fatal(err)
	}

	w.s3 = sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "good"}, {Name: "readonly"}, {Name: "keep"}}})
	w.s3.AddUser(t, "reading", "reading-secret", "readonly", "s3:GetObject", "s3:ListBucket")
	w.s3.AddUser(t, "keeping", "keeping-secret", "keep", "s3:GetObject", "s3:PutObject", "s3:ListBucket")
	w.rclone = sinktest.StartRclone(t)
	w.rclone.MakeBucket(t, sinktest.S3Bucket{Name: "good"})
	w.skewed = sinktest.NewFaultProxy(t, w.s3.Endpoint, sinktest.ProxyFault{
		Name: "times of yesterday", Times: -1, Match: func(r *http.Request) bool { return r.Method == http.MethodHead },
		Do: func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
			answer := httptest.NewRecorder()
			server.ServeHTTP(answer, r)
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			if modified, err := http.ParseTime(answer.Header().Get("Last-Modified")); err == nil {
				w.Header().Set("Last-Modified", modified.Add(-24*time.Hour).Format(http.TimeFormat))
			}
			w.WriteHeader(answer.Code)
		},
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
	if err != nil {
		t.Fatal(err)
	}
	return identity, w.write(t, name, identity.String()+"\n", 0o600)
}

func (w *agentWorld) write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func (w *agentWorld) backup(t *testing.T, repo string, more ...string) {
	t.Helper()
	args := append([]string{"backup", "--endpoints", w.plain.Endpoints()[0], "--repo", repo}, more...)
	if e := runHere(t.Context(), args...); e.code != exitOK {
		t.Fatal(e)
	}
}

// keys are keys of the configuration, such as "jobs.full.enabled"; nil takes one out.
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
		"resources.scratch-dir": w.dir, "listen.address": freeAddress(t),
	}) {
		set(key, value)
	}
	for key, value := range change {
		set(key, value)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return w.write(t, "agent.yaml", string(text), 0o644)
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// doctor examines a configuration.
func (w *agentWorld) doctor(t *testing.T, file string) (doctorReport, ended) {
	t.Helper()
	e := runHere(t.Context(), "doctor", "--agent-config", file, "--output", "json")
	var r doctorReport
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, e)
	}
	if want := map[bool]int{true: exitOK, false: exitFailed}[r.OK]; e.code != want {
		t.Errorf("exit code %d, want %d: %s", e.code, want, e)
	}
	return r, e
}

// misconfiguration is one thing that is wrong, and what has to be said of it.
type misconfiguration struct {
	name    string
	change  keys
	user    string // of S3; the administrator where empty
	verdict string
	check   string // a part of the check's name
	text    string // a part of what is said
	remedy  string // a part of what is said to do
	nobody  bool   // examined by a user without rights
}

// TestDoctorFindsMisconfigurations: doctor finds each of these, gives it the right
// weight and names the remedy; the configuration without the fault has no finding
// at all.
func TestDoctorFindsMisconfigurations(t *testing.T) {
	w := newAgentWorld(t)
	credentials := func(t *testing.T, user string) {
		w.s3.Setenv(t)
		if user != "" {
			t.Setenv("AWS_ACCESS_KEY_ID", user)
			t.Setenv("AWS_SECRET_ACCESS_KEY", user+"-secret")
		}
	}
	var pings atomic.Int64
	heard := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { pings.Add(1) }))
	t.Cleanup(heard.Close)
	for _, c := range []struct {
		name   string
		change keys
		looked []string // at these, among others
	}{
		{"plain", keys{"heartbeat.url-file": w.write(t, "ping", heard.URL+"/ping\n", 0o600), "webhook.url-file": w.write(t, "hook", heard.URL+"/hook\n", 0o600)},
			[]string{"configuration ", "endpoints", "quorum", "snapshot", "log ", "database ", "spool ", "archive.spool-dir", "resources.scratch-dir", "file://", "listen.address", "heartbeat", "webhook"}},
		{"encrypted", keys{"repository.url": w.encrypted, "encryption.recipients": w.identity.Recipient().String(),
			"encryption.identity-files": w.identityFile, "jobs.replay.enabled": true, "jobs.drill.enabled": true,
			"companions": []any{keys{"name": "keys", "path": w.identityFile}}}, []string{"backup ", "scratch ", "companion keys"}},
		{"TLS and S3", w.tlsKeys(keys{"repository.url": w.s3.URL("good", "p"), "objectives.certificate-notice": "10m"}),
			[]string{"certificate of https://", "certificate " + w.tls.ClientConfig().Cert, "certificate " + w.tls.ClientConfig().CACert, "s3://"}},
		{"with a user", w.authKeys(t, "root", storetest.RootPassword, nil), []string{"snapshot"}},
		{"archive alone, without rights", w.authKeys(t, "reader", "reader-password", keys{"jobs.full.enabled": false, "jobs.divergence.enabled": false,
			"retention.hourly": 0, "retention.daily": 0, "retention.weekly": 0, "retention.monthly": 0}), []string{"log "}},
		{"verifier", keys{"etcd": nil, "member": nil, "archive": nil, "jobs.full.enabled": false, "jobs.divergence.enabled": false,
			"jobs.drill.enabled": true, "repository.url": w.unencrypted}, []string{"endpoints", "scratch "}},
	} {
		t.Run("nothing wrong, "+c.name, func(t *testing.T) {
			credentials(t, "")
			r, _ := w.doctor(t, w.config(t, c.change))
			for _, found := range r.Checks {
				if found.Verdict != checkOK {
					t.Errorf("%+v", found)
				}
			}
			for _, want := range c.looked {
				if !slices.ContainsFunc(r.Checks, func(c checkReport) bool { return strings.HasPrefix(c.Check, want) }) {
					t.Errorf("nobody looked at %q: %+v", want, r.Checks)
				}
			}
		})
	}
	if n := pings.Load(); n > 0 {
		t.Errorf("%d requests were sent where pings go", n)
	}
	for _, m := range w.misconfigurations(t) {
		t.Run(m.name, func(t *testing.T) {
			credentials(t, m.user)
			file := w.config(t, m.change)
			var r doctorReport
			examine := func() { r, _ = w.doctor(t, file) }
			if m.nobody {
				sinktest.AsNobody(t, examine)
			} else {
				examine()
			}
			mustAdvise(t, r)
			for _, c := range r.Checks {
				if c.Verdict == m.verdict && strings.Contains(c.Check, m.check) && strings.Contains(c.Text, m.text) && strings.Contains(c.Text+" "+c.Next, m.remedy) {
					return
				}
			}
			t.Errorf("want %s of %q: …%s…, and to do: …%s…", m.verdict, m.check, m.text, m.remedy)
			for _, c := range r.Checks {
				if c.Verdict != checkOK {
					t.Logf("%+v", c)
				}
			}
		})
	}
	w.skewed.AllFired(t)
}

// nextStep finds what to do in a text that says it itself.
var nextStep = regexp.MustCompile(`: (write|add|remove|did you mean|set|use|give|create|chmod)\b`)

// mustAdvise: every check that failed has a next step.
func mustAdvise(t *testing.T, r doctorReport) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Verdict == checkFail && c.Next == "" && !nextStep.MatchString(c.Text) {
			t.Errorf("nothing says what to do: %+v", c)
		}
	}
}

// A repository that nobody listens at is told within seconds, however long the agent
// itself would try.
func TestDoctorDoesNotRetry(t *testing.T) {
	for name, v := range map[string]string{"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, v)
	}
	// One refuses, the other takes a connection and says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, c := range []struct {
		address string
		most    time.Duration
	}{{freeAddress(t), 8 * time.Second}, {silent.Addr().String(), doctorPatience + 5*time.Second}} {
		address, most := c.address, c.most
		url := "s3://bucket/p?region=r&endpoint=http://" + address + "&path-style=true"
		file := filepath.Join(t.TempDir(), "agent.yaml")
		text := "name: m1\nrepository: {url: '" + url + "', retry-for: 1m}\njobs: {full: {enabled: false}, divergence: {enabled: false}}\nlisten: {address: '" + freeAddress(t) + "'}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--agent-config", file}, {"--repo", url, "--endpoints", "http://" + freeAddress(t)}} {
			if address == silent.Addr().String() && args[0] == "--repo" {
				continue // it is the same code, and takes its time
			}
			began := time.Now()
			e := runHere(t.Context(), append([]string{"doctor", "--output", "json"}, args...)...)
			took := time.Since(began)
			var r doctorReport
			if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
				t.Fatalf("%v: %s", err, e)
			}
			if took > most || r.OK {
				t.Errorf("%v took %s: %s", args, took, e)
			}
			t.Logf("%v: %s", args, took)
			mustAdvise(t, r)
			told := 0
			for _, c := range r.Checks {
				if c.Verdict == checkFail && strings.Contains(c.Check, "s3://bucket") {
					if told++; !strings.Contains(c.Next, "can be reached from this host") {
						t.Errorf("%+v", c)
					}
				}
			}
			if told != 1 {
				t.Errorf("one cause is told %d times: %s", told, e)
			}
		}
	}
}

// Two agents of one name are found where what they left proves it.
func TestDoctorFindsNamesakes(t *testing.T) {
	dir := t.TempDir()
	sink, err := place.Open(t.Context(), filepath.Join(dir, "repo"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	repo, err := repository.Init(t.Context(), sink, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse([]byte("name: m1\nrepository: {url: 'file://"+dir+"/repo'}\njobs: {full: {enabled: false}, divergence: {enabled: false}}\n"), "agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		process string
		want    int
	}{{"a", 0}, {"b", 0}, {"a", 1}} {
		claim := repository.Claim{Job: "merge", Slot: repository.SlotName(time.Now().Add(time.Duration(i) * time.Hour)), Attempt: 1, Holder: "m1", Process: step.process, Created: time.Now()}
		if err := repo.WriteClaim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // so that their times differ
		e := examination{agent: c}
		e.examineNamesake(t.Context(), repo)
		if len(e.report.Checks) != step.want || step.want > 0 && (e.report.Checks[0].Verdict != checkWarn || e.report.Checks[0].Next == "") {
			t.Errorf("claim %d: %+v", i, e.report.Checks)
		}
	}
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

// misconfigurations are each one fault in what is in order otherwise.
func (w *agentWorld) misconfigurations(t *testing.T) []misconfiguration {
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(late.Close)
	expired, expiredKey := w.tls.Authority().Issue(t, "expired", -time.Minute)
	ours, oursKey := w.authority.Issue(t, "ours", time.Hour)
	soon, soonKey := w.authority.Issue(t, "soon", 24*time.Hour)
	recipient := w.identity.Recipient().String()
	empty := filepath.Join(w.dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	unwritable := filepath.Join(w.dir, "unwritable")
	if err := os.Mkdir(unwritable, 0o555); err != nil {
		t.Fatal(err)
	}
	return []misconfiguration{
		// The file.
		{"misspelt key", keys{"repository.limit-uplaod": "1MiB"}, "", checkFail, "repository.limit-uplaod", "unknown key", `did you mean "limit-upload"`, false},
		{"cron with six fields", keys{"jobs.full.schedule": "0 0 1 * * *"}, "", checkFail, "jobs.full.schedule", "no cron expression", "minute, hour", false},
		{"time zone", keys{"time-zone": "Europe/Atlantis"}, "", checkFail, "time-zone", "no time zone", "Europe/Berlin", false},
		{"password in the file", keys{"etcd.user": "root:secret"}, "", checkFail, "etcd.user", "does not stand in this file", "etcd.password-file", false},
		{"log of no member", keys{"member": nil, "archive.enabled": true}, "", checkFail, "archive.", "", "member.data-dir", false},

		// The cluster.
		{"wrong port", keys{"etcd.endpoints": []string{"http://" + freeAddress(t)}}, "", checkFail, "endpoints", "refused", "etcd.endpoints", false},
		{"two clusters", keys{"etcd.endpoints": append(w.plain.Endpoints(), w.other.Endpoints()...)}, "", checkFail, "endpoints", "cluster", "etcd.endpoints", false},
		{"no quorum", keys{"etcd.command-timeout": "1s", "etcd.dial-timeout": "500ms", "etcd.endpoints": w.minority.Endpoints(), "member.data-dir": w.minority.Member(0).DataDir}, "", checkFail, "quorum", "", "a backup needs a quorum", false},
		{"members that are down", keys{"etcd.command-timeout": "1s", "etcd.dial-timeout": "500ms", "etcd.endpoints": w.minority.Endpoints(), "member.data-dir": w.minority.Member(0).DataDir}, "", checkWarn, "endpoint " + w.minority.Endpoints()[1], "refused", "check this one", false},
		{"plain text to TLS", keys{"etcd.endpoints": []string{strings.Replace(w.tls.Endpoints()[0], "https", "http", 1)}}, "", checkFail, "endpoints", "", "https", false},
		{"CA of somebody else", w.tlsKeys(keys{"etcd.cacert": w.authority.CA}), "", checkFail, "endpoints", "certificate", "what TLS and users need", false},
		{"expired client certificate", w.tlsKeys(keys{"etcd.cert": expired, "etcd.key": expiredKey}), "", checkFail, "certificate " + expired, "has expired", "renew it", false},
		{"certificate and key of two", w.tlsKeys(keys{"etcd.key": oursKey}), "", checkFail, "etcd.cert", "do not go together", "private key does not match", false},
		{"server certificate expires soon", w.tlsKeys(keys{"objectives.certificate-notice": "2w"}), "", checkWarn, "certificate of https://", "expires", "renew the member's certificate", false},
		{"wrong password", w.authKeys(t, "root", "mistyped", nil), "", checkFail, "endpoints", "password is wrong", "etcd.password-file", false},
		{"user without the root role", w.authKeys(t, "reader", "reader-password", nil), "", checkFail, "snapshot", "", "root role", false},
		{"clock of a member", keys{"etcd.endpoints": append(w.plain.Endpoints(), late.URL)}, "", checkWarn, "clock of " + late.URL, "differs", "NTP", false},

		// The member.
		{"data directory of another cluster", keys{"member.data-dir": w.other.Member(0).DataDir}, "", checkFail, "log ", "endpoints are of cluster", "of one cluster", false},
		{"no data directory there", keys{"member.data-dir": empty}, "", checkFail, "log ", "", "member.data-dir", false},
		{"log of another user", keys{}, "", checkFail, "log ", "permission denied", "user", true},
		{"more spool than there is room", keys{"archive.spool-limit": "1000TiB"}, "", checkWarn, "spool ", "less than its bound", "archive.spool-limit", false},

		// The repository.
		{"bucket that is not there", keys{"repository.url": w.s3.URL("nowhere", "p")}, "", checkFail, "s3://nowhere", "bucket", "", false},
		{"no right to write", keys{"repository.url": w.s3.URL("readonly", "p")}, "reading", checkFail, "s3://readonly", "", "right", false},
		{"no right to delete", keys{"repository.url": w.s3.URL("keep", "p")}, "keeping", checkFail, "s3://keep", "nothing can be deleted", "s3:DeleteObject", false},
		{"no conditional puts, no writer", keys{"repository.url": w.rclone.URL("good", "p")}, "", checkFail, "s3://good", "overwrite the other's log", "repository.writer: m1", false},
		{"another writer", keys{"repository.url": w.rclone.URL("good", "q"), "repository.writer": "m2"}, "", checkWarn, "s3://good", "this agent (m1) waits", "conditional puts", false},
		{"writer without need", keys{"repository.url": w.s3.URL("good", "q"), "repository.writer": "m1"}, "", checkWarn, "repository.writer", "no other agent takes over", "remove repository.writer", false},
		{"clock of the repository", keys{"repository.url": w.s3.URLThrough(w.skewed.Endpoint, "good", "s")}, "", checkWarn, "s3://good", "differ by 24h", "NTP", false},

		// Keys.
		{"structure without an identity", keys{"encryption.recipients": recipient, "jobs.merge.enabled": false}, "", checkFail, "jobs.structure", "recipients alone", "encryption.identity-files", false},
		{"identity of another recipient", keys{"encryption.recipients": recipient, "encryption.identity-files": w.strangerFile}, "", checkFail, "encryption.identity-files", "do not open", "identity of one of these recipients", false},
		{"drill on an encrypted repository", keys{"repository.url": w.encrypted, "jobs.drill.enabled": true}, "", checkFail, "backup ", "no identity", "encryption.identity-files", false},
		{"lost identity", keys{"repository.url": w.encrypted, "encryption.recipients": w.stranger.Recipient().String(), "encryption.identity-files": w.strangerFile}, "", checkFail, "backup ", "do not open it", "identity of one of these recipients", false},
		{"secret that others read", keys{"heartbeat.url-file": w.write(t, "open-url", "http://"+w.plain.Endpoints()[0][7:]+"/ping\n", 0o644)}, "", checkWarn, "heartbeat.url-file", "others can read", "chmod 600", false},
		{"companions in the clear", keys{"companions": []any{keys{"name": "pki", "path": w.dir}}}, "", checkFail, "companions", "nothing is encrypted", "encryption.recipients", false},
		{"companion that is not there", keys{"encryption.recipients": recipient, "encryption.identity-files": w.identityFile, "companions": []any{keys{"name": "pki", "path": filepath.Join(w.dir, "pki")}}},
			"", checkFail, "companion pki", "no such file", "companions", false},

		// The host.
		{"port that is taken", keys{"listen.address": taken.Listener.Addr().String()}, "", checkFail, "listen.address", "address already in use", "another port", false},
		{"port of etcd", keys{"listen.address": "127.0.0.1:2380"}, "", checkWarn, "listen.address", "etcd", "2390", false},
		{"plain text beyond loopback", keys{"listen.address": "0.0.0.0:2390"}, "", checkFail, "listen.address", "plain text", "listen.cert", false},
		{"server's certificate and key of two", keys{"listen.cert": ours, "listen.key": soonKey}, "", checkFail, "listen.cert", "do not go together", "does not match", false},
		{"CA that is none", keys{"listen.cert": soon, "listen.key": soonKey, "listen.client-ca": soonKey}, "", checkFail, "listen.client-ca", "holds no PEM certificate", "write the path of one", false},
		{"anybody may read", keys{"listen.address": "0.0.0.0:2390", "listen.cert": soon, "listen.key": soonKey}, "", checkWarn, "listen.address", "nobody can start a job there", "listen.client-ca", false},
		{"heartbeat that nobody hears", keys{"heartbeat.url": "http://" + freeAddress(t) + "/ping"}, "", checkFail, "heartbeat", "refused", "heartbeat.url", false},
		{"webhook without its file", keys{"webhook.url-file": filepath.Join(w.dir, "none")}, "", checkFail, "webhook.url-file", "no such file", "", false},
		{"scratch folder that cannot be written", keys{"resources.scratch-dir": unwritable}, "", checkFail, "resources.scratch-dir", "permission denied", "give it to the agent's user", true},
		{"job-memory that no job can live with", keys{"resources.job-memory": "128MiB"}, "", checkFail, "resources.job-memory", "too little for any job", "256MiB at least", false},
		{"scratch folder that is not there", keys{"resources.scratch-dir": filepath.Join(w.dir, "scratch")}, "", checkFail, "resources.scratch-dir", "no such file", "make the folder", false},

		// What retention promises.
		{"any point without the archive", keys{"member": nil, "archive": nil}, "", checkWarn, "retention.any-point", "archives no log", "member.data-dir", false},
		{"daily without full snapshots", keys{"jobs.full.schedule": "0 1 * * 0"}, "", checkWarn, "retention.daily", "1w apart", "jobs.full.schedule", false},
	}
}

// Jobs that replay need room on the disk and in memory for the newest backup.
func TestDoctorRoom(t *testing.T) {
	c, err := config.Parse([]byte("repository: {url: file:///b}\njobs: {full: {enabled: false}, divergence: {enabled: false}, drill: {enabled: true}}\nresources: {scratch-dir: /, job-memory: 1GiB}\n"), "agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []struct {
		raw, keys int64
		want      map[string]string // what to do, by check
	}{
		{1 << 20, 1000, nil},
		{1 << 50, 1000, map[string]string{"scratch /": "resources.scratch-dir"}},
		{1 << 20, 10_000_000, map[string]string{"resources.job-memory": "resources.job-memory: 4848MiB"}},
	} {
		e := examination{agent: c}
		var m snapshot.Manifest
		m.Object.RawSize, m.Keys.Count = room.raw, &room.keys
		e.examineRoom(&m)
		found := map[string]string{}
		for _, c := range e.report.Checks {
			if c.Verdict == checkFail {
				found[c.Check] = c.Next
			}
		}
		if len(found) != len(room.want) {
			t.Errorf("%+v: %v", room, found)
		}
		for check, next := range room.want {
			if !strings.Contains(found[check], next) {
				t.Errorf("%+v: %v", room, found)
			}
		}
	}
}

// Promise 4: --agent-config and options that it would make useless are refused
// together; a file that is not there is a failed check.
func TestDoctorAgentUsage(t *testing.T) {
	if e := runHere(t.Context(), "doctor", "--agent-config", "x.yaml", "--repo", "file:///b"); e.code != exitUsage || !strings.Contains(e.stderr, "--repo") {
		t.Errorf("%s", e)
	}
	e := runHere(t.Context(), "doctor", "--agent-config", filepath.Join(t.TempDir(), "none.yaml"))
	if e.code != exitFailed || !strings.Contains(e.stdout, "no such file") || !strings.Contains(e.stdout, "→ ") {
		t.Errorf("%s", e)
	}
}

// The port of an agent that is running already is no fault; somebody else's is.
func TestDoctorPortOfTheAgent(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/status" {
			w.Write([]byte(`{"agent":"m1"}`))
		}
	})
	plain := httptest.NewServer(answer)
	defer plain.Close()
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "agent", time.Hour)
	otherCert, otherKey := authority.Issue(t, "other", time.Hour)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewUnstartedServer(answer)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for _, c := range []struct{ name, agent, listen, want string }{
		{"plain", "m1", "address: " + plain.Listener.Addr().String(), checkOK},
		{"another agent", "m2", "address: " + plain.Listener.Addr().String(), checkFail},
		{"TLS", "m1", fmt.Sprintf("address: %s, cert: %s, key: %s", secure.Listener.Addr(), cert, key), checkOK},
		{"somebody else's certificate", "m1", fmt.Sprintf("address: %s, cert: %s, key: %s", secure.Listener.Addr(), otherCert, otherKey), checkFail},
	} {
		text := fmt.Sprintf("name: %s\netcd: {endpoints: 'http://127.0.0.1:2379'}\nrepository: {url: file:///b}\nlisten: {%s}\n", c.agent, c.listen)
		agent, err := config.Parse([]byte(text), "agent.yaml")
		if err != nil {
			t.Fatal(err)
		}
		e := examination{agent: agent}
		if e.examinePort(t.Context()); e.report.Checks[0].Verdict != c.want {
			t.Errorf("%s: %+v", c.name, e.report.Checks)
		}
	}
}
