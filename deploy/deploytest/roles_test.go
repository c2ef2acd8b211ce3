package deploytest

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// Three agents, each with a key of its own and the policy of deploy/s3 for it: one
// beside a member, which can read nothing of what it stored; the verifier, which
// proves it and can delete nothing; the pruner, which can sign nothing but what it deleted.
// None of them meets a right that it lacks.
func TestRoles(t *testing.T) {
	t.Parallel()
	const bucket, prefix = "plain", "teams/etcd"
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: bucket}}})
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	users := map[string][]string{}
	for _, name := range []string{"agent", "verifier", "pruner"} {
		server.AddUser(t, name, name+"-secret", bucket, "s3:GetBucketLocation")
		users[name] = []string{name}
	}
	bucketPolicy(t, server, bucket, prefix, users)
	requests := record(t, server)
	dir := t.TempDir()
	to := recipient(t, dir)
	trust := signer(t, filepath.Join(dir, "agent.key"))
	for name, kind := range map[string]string{"verifier": "verdict", "pruner": "pruned"} {
		trust += replaced(t, signer(t, filepath.Join(dir, name+".key")), " ssh-", ` namespaces="requorum-`+kind+`,requorum-job" ssh-`)
	}
	trustFile := write(t, filepath.Join(dir, "trust"), trust)

	start := func(name, config string) *agent {
		t.Helper()
		address := storetest.FreeAddress(t)
		config = replaced(t, config, "s3://BUCKET/PREFIX?region=eu-central-1", "'"+server.URLThrough(requests.proxy.Endpoint, bucket, prefix)+"'") + "\nlisten: {address: '" + address + "'}\n"
		path := write(t, filepath.Join(dir, name+".yaml"), config)
		state := filepath.Join(dir, name)
		return startAgent(t, append(keysOf(name), "STATE_DIRECTORY="+state, "TMPDIR="+dir), address, storetest.Requorum(t), "agent", "--config", path)
	}
	beside := start("agent", replaced(t, deployed(t, "kubernetes", "static-pod", "agent.yaml"),
		"'https://127.0.0.1:2379'", c.Endpoints()[0],
		"  cacert: /etc/kubernetes/pki/etcd/ca.crt\n", "",
		"  cert: /etc/kubernetes/pki/etcd/healthcheck-client.crt\n", "",
		"  key: /etc/kubernetes/pki/etcd/healthcheck-client.key\n", "",
		"/var/lib/etcd", c.Member(0).DataDir,
		"AGE-RECIPIENT", to,
		"merge: {run: off}", "merge: {run: off}\n  prune: {run: off}\n  full: {"+eachMinute+"}\n  checksum: {"+eachMinute+"}",
		"/etc/requorum/agent/signing.key", filepath.Join(dir, "agent.key"), "/etc/requorum/agent/trust", trustFile,
		"/var/lib/requorum", filepath.Join(dir, "agent")))
	eventually(t, "a full snapshot", func() bool { return strings.Contains(beside.log.String(), "msg=done job=full") })
	_, err := c.Client(t).Put(t.Context(), "after", "the full snapshot") // for the log to have something behind it
	require.NoError(t, err)
	eventually(t, "a verdict", func() bool { return strings.Contains(beside.log.String(), "msg=done job=checksum") })
	verifier := start("verifier", replaced(t, deployed(t, "systemd", "verifier.yaml"),
		"structure: {run: here}", "structure: {run: here, "+eachMinute+"}", "replay: {run: here}", "replay: {run: here, "+eachMinute+"}", "drill: {run: here}", "drill: {run: here, "+eachMinute+"}",
		"AGE-RECIPIENT", to, "/etc/requorum/signing.key", filepath.Join(dir, "verifier.key"), "/etc/requorum", dir, "/var/lib/requorum", dir))
	for _, job := range []string{"structure", "replay", "drill"} {
		eventually(t, job, func() bool { return strings.Contains(verifier.log.String(), "passed the level "+job) })
	}
	// The first full snapshot stays since it was proved, and the last one: those between
	// are pruned.
	eventually(t, "two more full snapshots", func() bool { return strings.Count(beside.log.String(), "msg=done job=full") >= 3 })
	pruner := start("pruner", replaced(t, deployed(t, "systemd", "pruner.yaml"), "prune: {run: here}", "prune: {run: here, "+eachMinute+"}", "any-point: 7d, daily: 35, weekly: 8, monthly: 12", "any-point: 0s, last: 1, daily: 0, weekly: 0, monthly: 0, minimum: 1", "/etc/requorum/signing.key", filepath.Join(dir, "pruner.key"), "/etc/requorum", dir))
	eventually(t, "pruned", func() bool { return strings.Contains(pruner.log.String(), "msg=done job=prune") })
	for name, a := range map[string]*agent{"agent": beside, "verifier": verifier, "pruner": pruner} {
		for _, bad := range []string{"level=ERROR", "lack", "denied"} {
			if strings.Contains(a.log.String(), bad) {
				t.Errorf("%s: %s in\n%s", name, bad, a.log)
			}
		}
		eventually(t, name+" is ready", func() bool {
			code, _ := a.get(t.Context(), "/readyz")
			return code == http.StatusOK
		})
	}
	requests.check(t, bucket, prefix, users, map[string][]string{
		"agent":    {"requorum.json", "timelines/*", "*/full/*/manifest.json", "*/full/*/snapshot.zst.age", "*/l0/*", "verdicts/*", "jobs/*"},
		"verifier": {"verdicts/*", "jobs/*"},
		"pruner":   {"pruned/*", "jobs/*"},
	})
	// doctor finds no problem with any of them.
	for name := range users {
		e := run(t, append(keysOf(name), "STATE_DIRECTORY="+filepath.Join(dir, name), "TMPDIR="+dir), storetest.Requorum(t), "doctor", "--agent-config", filepath.Join(dir, name+".yaml"))
		if strings.Contains("\n"+e.text, "\nproblem ") || !strings.Contains(e.text, "can be written, read and listed") {
			t.Errorf("%s: %s", name, e.text)
		}
	}
}
