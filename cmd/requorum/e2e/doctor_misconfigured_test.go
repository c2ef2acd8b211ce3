package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// misconfiguration is one thing that is wrong, and what has to be said of it.
type misconfiguration struct {
	name   string
	change keys
	user   string // of S3; the administrator where empty
	status string
	check  string // a part of the check's name
	text   string // a part of what is said
	remedy string // a part of what is said to do
	nobody bool   // examined by a user without rights
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
		user   string   // of S3; the administrator where empty
	}{
		{"plain", keys{"heartbeat.url-file": w.write(t, "ping", heard.URL+"/ping\n", 0o600)},
			[]string{"configuration", "endpoints", "member ", "quorum", "snapshot", "log ", "database ", "archive.spool-dir", "file://", "listen.address", "heartbeat"}, ""},
		{"encrypted", keys{"repository.url": w.encrypted, "encryption.recipients": w.identity.Recipient().String(),
			"encryption.identity-files": w.identityFile, "jobs.replay.run": "lease", "jobs.drill.run": "lease",
			"attachments": []any{w.identityFile}}, []string{"full snapshot ", "resources.scratch-dir", "attachments"}, ""},
		{"TLS and S3", w.tlsKeys(keys{"repository.url": w.s3.URL("good", "p"), "objectives.certificate-notice": "10m"}),
			[]string{"certificate of https://", "certificate " + w.tls.ClientConfig().Cert, "certificate " + w.tls.ClientConfig().CACert, "s3://"}, ""},
		{"with a user", w.authKeys(t, "root", storetest.RootPassword, nil), []string{"snapshot"}, ""},
		{"archive alone, without rights", w.authKeys(t, "reader", "reader-password", keys{"jobs.full.run": "off", "jobs.divergence.run": "off",
			"retention.hourly": 0, "retention.daily": 0, "retention.weekly": 0, "retention.monthly": 0}), []string{"log "}, ""},
		{"verifier", keys{"etcd": nil, "member": nil, "archive": nil, "jobs.full.run": "off", "jobs.divergence.run": "off",
			"jobs.drill.run": "lease", "repository.url": w.unencrypted}, []string{"resources.scratch-dir"}, ""},
		{"a key that deletes nothing", keys{"repository.url": w.s3.URL("keep", "p"), "jobs.prune.run": "off", "jobs.merge.run": "off"}, []string{"s3://keep"}, "keeping"},
	} {
		t.Run("nothing wrong, "+c.name, func(t *testing.T) {
			credentials(t, c.user)
			r, _ := w.doctor(t, w.config(t, c.change), false)
			for _, found := range r.Checks {
				// The members of a test are started for the first time.
				if found.Status != checkOK && !strings.Contains(found.Text, "--initial-cluster-state=new") {
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
			r, _ := w.doctor(t, w.config(t, m.change), m.nobody)
			mustAdvise(t, r)
			for _, c := range r.Checks {
				if c.Status == m.status && strings.Contains(c.Check+" "+c.Text, m.check) && strings.Contains(c.Text, m.text) && strings.Contains(c.Text+" "+c.Next, m.remedy) {
					return
				}
			}
			t.Errorf("want %s of %q: …%s…, and to do: …%s…", m.status, m.check, m.text, m.remedy)
			for _, c := range r.Checks {
				if c.Status != checkOK {
					t.Logf("%+v", c)
				}
			}
		})
	}
	w.skewed.AllFired(t)
}

// mustAdvise: every check that failed has a next step.
func mustAdvise(t *testing.T, r doctorReport) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Status == checkProblem && c.Next == "" {
			t.Errorf("nothing says what to do: %+v", c)
		}
	}
}

// misconfigurations are each one fault in what is in order otherwise.
func (w *agentWorld) misconfigurations(t *testing.T) []misconfiguration {
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	expired, expiredKey := w.tls.Authority().Issue(t, "expired", -time.Minute)
	ours, oursKey := w.authority.Issue(t, "ours", time.Hour)
	soon, soonKey := w.authority.Issue(t, "soon", 24*time.Hour)
	recipient := w.identity.Recipient().String()
	empty := filepath.Join(w.dir, "empty")
	require.NoError(t, os.Mkdir(empty, 0o755))
	unwritable := filepath.Join(w.dir, "unwritable")
	require.NoError(t, os.Mkdir(unwritable, 0o555))
	all := []misconfiguration{
		// The file.
		{"misspelt key", keys{"repository.limit-uplaod": "1MiB"}, "", checkProblem, "repository.limit-uplaod", "unknown key", `did you mean "limit-upload"`, false},
		{"cron with six fields", keys{"jobs.full.schedule": "0 0 1 * * *"}, "", checkProblem, "jobs.full.schedule", "no cron expression", "minute, hour", false},
		{"time zone", keys{"time-zone": "Europe/Atlantis"}, "", checkProblem, "time-zone", "no time zone", "Europe/Berlin", false},
		{"password in the file", keys{"etcd.user": "root:secret"}, "", checkProblem, "etcd.user", "no password is read here", "etcd.password-file", false},
		{"log of no member", keys{"member": nil, "archive.enabled": true}, "", checkProblem, "archive.", "", "member.data-dir", false},

		// The cluster.
		{"wrong port", keys{"etcd.endpoints": []string{"http://" + storetest.FreeAddress(t)}}, "", checkProblem, "endpoints", "refused", "etcd.endpoints", false},
		{"two clusters", keys{"etcd.endpoints": append(w.plain.Endpoints(), w.other.Endpoints()...)}, "", checkProblem, "endpoints", "cluster", "etcd.endpoints", false},
		{"no quorum", keys{"etcd.command-timeout": "1s", "etcd.dial-timeout": "500ms", "etcd.endpoints": w.minority.Endpoints(), "member.data-dir": w.minority.Member(0).DataDir}, "", checkProblem, "quorum", "", "a backup needs a quorum", false},
		{"members that are down", keys{"etcd.command-timeout": "1s", "etcd.dial-timeout": "500ms", "etcd.endpoints": w.minority.Endpoints(), "member.data-dir": w.minority.Member(0).DataDir}, "", checkWarning, "endpoint " + w.minority.Endpoints()[1], "refused", "check this member", false},
		{"plain text to TLS", keys{"etcd.endpoints": []string{strings.Replace(w.tls.Endpoints()[0], "https", "http", 1)}}, "", checkProblem, "endpoints", "", "https", false},
		{"CA of somebody else", w.tlsKeys(keys{"etcd.cacert": w.authority.CA}), "", checkProblem, "endpoints", "certificate", "what TLS and users need", false},
		{"expired client certificate", w.tlsKeys(keys{"etcd.cert": expired, "etcd.key": expiredKey}), "", checkProblem, "certificate " + expired, "is valid until", "it has expired: renew it", false},
		{"certificate and key of two", w.tlsKeys(keys{"etcd.key": oursKey}), "", checkProblem, "etcd.cert", "do not go together", "private key does not match", false},
		{"server certificate expires soon", w.tlsKeys(keys{"objectives.certificate-notice": "2w"}), "", checkWarning, "certificate of https://", "is valid until", "renew it", false},
		{"wrong password", w.authKeys(t, "root", "mistyped", nil), "", checkProblem, "endpoints", "password is wrong", "users need", false},
		{"user without the root role", w.authKeys(t, "reader", "reader-password", nil), "", checkProblem, "snapshot", "", "root role", false},

		// The member.
		{"data directory of another cluster", keys{"member.data-dir": w.other.Member(0).DataDir}, "", checkProblem, "log ", "endpoints are of cluster", "of one cluster", false},
		{"no data directory there", keys{"member.data-dir": empty}, "", checkProblem, "log ", "", "member.data-dir", false},
		{"log of another user", keys{}, "", checkProblem, "log ", "permission denied", "user", true},
		{"more spool than there is room", keys{"archive.spool-limit": "1000TiB"}, "", checkWarning, "archive.spool-dir", "may need 1000 TiB", "more room", false},

		// The repository.
		{"bucket that is not there", keys{"repository.url": w.s3.URL("nowhere", "p")}, "", checkProblem, "s3://nowhere", "bucket", "", false},
		{"no right to write", keys{"repository.url": w.s3.URL("readonly", "p")}, "reading", checkProblem, "s3://readonly", "", "right", false},
		{"no right to delete", keys{"repository.url": w.s3.URL("keep", "p")}, "keeping", checkProblem, "s3://keep", "access denied", "jobs prune and merge", false},
		{"clock of the repository", keys{"repository.url": w.s3.URLThrough(w.skewed.Endpoint, "good", "s")}, "", checkWarning, "s3://good", "differ by 24h", "NTP", false},

		// Keys.
		{"structure without an identity", keys{"encryption.recipients": recipient, "jobs.structure.run": "lease"}, "", checkProblem, "jobs.structure", "recipients alone", "encryption.identity-files", false},
		{"identity of another recipient", keys{"encryption.recipients": recipient, "encryption.identity-files": w.strangerFile}, "", checkProblem, "encryption.identity-files", "do not open", "identity of one of these recipients", false},
		{"drill on an encrypted repository", keys{"repository.url": w.encrypted, "jobs.drill.run": "lease"}, "", checkProblem, "full snapshot ", "no identity", "encryption.identity-files", false},
		{"nothing is encrypted there any more", keys{"repository.url": w.encrypted}, "", checkProblem, "encryption.recipients", "has encrypted full snapshots", "as the other writers have it", false},
		{"lost identity", keys{"repository.url": w.encrypted, "encryption.recipients": w.stranger.Recipient().String(), "encryption.identity-files": w.strangerFile}, "", checkProblem, "full snapshot ", "does not open it", "an identity that opens it", false},
		{"secret that others read", keys{"heartbeat.url-file": w.write(t, "open-url", "http://"+w.plain.Endpoints()[0][7:]+"/ping\n", 0o644)}, "", checkWarning, "heartbeat.url-file", "others can read", "chmod 600", false},
		{"attachments in the clear", keys{"attachments": []any{w.dir}}, "", checkProblem, "attachments", "nothing is encrypted", "encryption.recipients", false},
		{"attachment that is not there", keys{"encryption.recipients": recipient, "encryption.identity-files": w.identityFile, "attachments": []any{filepath.Join(w.dir, "pki")}},
			"", checkProblem, "attachments", "no such file", "attachments", false},

		// The host.
		{"port that is taken", keys{"listen.address": taken.Listener.Addr().String()}, "", checkWarning, "listen.address", "address already in use", "another port", false},
		{"port of etcd", keys{"listen.address": "127.0.0.1:2380"}, "", checkWarning, "listen.address", "etcd", "2390", false},
		{"plain text beyond loopback", keys{"listen.address": "0.0.0.0:2390"}, "", checkProblem, "listen.address", "plain text", "listen.cert", false},
		{"server's certificate and key of two", keys{"listen.cert": ours, "listen.key": soonKey}, "", checkProblem, "listen.cert", "do not go together", "does not match", false},
		{"CA that is none", keys{"listen.cert": soon, "listen.key": soonKey, "listen.client-ca": soonKey}, "", checkProblem, "listen.client-ca", "holds no PEM certificate", "write the path of one", false},
		{"anybody may read", keys{"listen.address": "0.0.0.0:2390", "listen.cert": soon, "listen.key": soonKey}, "", checkWarning, "listen.address", "can read the status", "listen.client-ca", false},
		{"heartbeat that nobody hears", keys{"heartbeat.url": "http://" + storetest.FreeAddress(t) + "/ping"}, "", checkProblem, "heartbeat", "refused", "heartbeat.url", false},
		{"heartbeat without its file", keys{"heartbeat.url-file": filepath.Join(w.dir, "none")}, "", checkProblem, "heartbeat.url-file", "no such file", "", false},
		{"scratch folder that cannot be written", keys{"resources.scratch-dir": unwritable}, "", checkProblem, "resources.scratch-dir", "permission denied", "give it to the agent's user", true},
		{"job-memory that no job can live with", keys{"resources.job-memory": "128MiB"}, "", checkProblem, "resources.job-memory", "too little for any job", "256MiB at least", false},
		{"scratch folder that is not there", keys{"resources.scratch-dir": filepath.Join(w.dir, "scratch")}, "", checkProblem, "resources.scratch-dir", "no such file", "give it to the agent's user", false},

		// What retention promises.
		{"any point without the archive", keys{"member": nil, "archive": nil}, "", checkWarning, "retention.any-point", "archives no log", "member.data-dir", false},
		{"daily without full snapshots", keys{"jobs.full.schedule": "0 1 * * 0"}, "", checkWarning, "retention.daily", "1w apart", "jobs.full.schedule", false},
	}
	if w.rclone != nil {
		all = append(all, []misconfiguration{
			{"no conditional puts", keys{"repository.url": w.rclone.URL("good", "p")}, "", checkProblem, "s3://good", "overwrite the other's log", "repository.lease: off", false},
			{"no conditional puts, no lease", keys{"repository.url": w.rclone.URL("good", "q"), "repository.lease": "off"}, "", checkWarning, "s3://good", "overwrite the other's log", "conditional puts", false},
		}...)
	}
	return all
}
