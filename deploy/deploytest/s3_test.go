package deploytest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

type statement map[string]any

// policy is one of deploy/s3, with bucket and prefix filled in.
func policy(t testing.TB, name, bucket, prefix string) []statement {
	t.Helper()
	var p struct {
		Version   string
		Statement []statement
	}
	text := replaced(t, deployed(t, "s3", name+".json"), "BUCKET", bucket, "PREFIX", prefix)
	require.NoError(t, json.Unmarshal([]byte(text), &p), "deploy/s3/%s.json", name)
	if p.Version != "2012-10-17" || len(p.Statement) == 0 {
		t.Fatalf("deploy/s3/%s.json: %+v", name, p)
	}
	for _, s := range p.Statement {
		for _, forbidden := range []string{"Bypass", "PutBucket", "DeleteBucket", "PutLifecycle", "DeleteObjectVersion", "s3:*", `"*"`} {
			if data, err := json.Marshal(s); err != nil || strings.Contains(string(data), forbidden) {
				t.Errorf("deploy/s3/%s.json allows %s (%v)", name, forbidden, err)
			}
		}
	}
	return p.Statement
}

// bucketPolicy gives each user of a server the policies that it names.
func bucketPolicy(t testing.TB, server *sinktest.S3Server, bucket, prefix string, users map[string][]string) {
	t.Helper()
	var all []statement
	holders := map[string][]string{}
	for user, names := range users {
		for _, name := range names {
			holders[name] = append(holders[name], user)
		}
	}
	for name, users := range holders {
		for _, s := range withoutConditions(policy(t, name, bucket, prefix)) {
			delete(s, "Sid")                              // the server keeps policies of 4 KiB at most
			s["Principal"] = map[string]any{"AWS": users} // in a policy of the user's own it is left out
			all = append(all, s)
		}
	}
	data, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": all})
	require.NoError(t, err)
	text := string(data)
	if _, err := server.Client().PutBucketPolicy(t.Context(), &awss3.PutBucketPolicyInput{Bucket: &bucket, Policy: &text}); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// keysOf is the environment of a user.
func keysOf(user string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + user, "AWS_SECRET_ACCESS_KEY=" + user + "-secret", "AWS_EC2_METADATA_DISABLED=true"}
}

func sinkOf(t *testing.T, url, user string) sinks.Sink {
	t.Helper()
	c, err := s3.ParseURL(url)
	require.NoError(t, err)
	c.Credentials = credentials.NewStaticCredentialsProvider(user, user+"-secret", "")
	c.Retry.For = time.Minute
	sink, err := s3.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { sink.Close() })
	return sink
}

// stored are the objects' names.
func stored(t *testing.T, sink sinks.Sink) []string {
	t.Helper()
	var all []string
	for o, err := range sink.List(t.Context(), "", "") {
		require.NoError(t, err)
		all = append(all, o.Name)
	}
	return all
}

// Each policy is enough for what it is made for, with the command lines of the
// CronJobs, and for no more: who backs up can restore, and delete nothing; who verifies
// can add a verdict and nothing else; who prunes can add no backup; who merges can delete
// what merging removes. In a bucket with versions and in one without.
func TestPolicies(t *testing.T) {
	t.Parallel()
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "plain"}, {Name: "kept", Versioned: true}}})
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	for _, bucket := range []string{"plain", "kept"} {
		t.Run(bucket, func(t *testing.T) { expectPolicies(t, server, c, bucket) })
	}
}

func expectPolicies(t *testing.T, server *sinktest.S3Server, c *storetest.Cluster, bucket string) {
	const prefix = "teams/etcd"
	users := map[string][]string{}
	for _, name := range []string{"agent", "verifier", "pruner", "merger", "operator"} {
		user := name + "-" + bucket
		server.AddUser(t, user, user+"-secret", bucket, "s3:GetBucketLocation")
		users[user] = []string{name}
	}
	users["merger-"+bucket] = []string{"agent", "merger"}
	users["operator-"+bucket] = []string{"agent", "operator"}
	bucketPolicy(t, server, bucket, prefix, users)
	requests := record(t, server)
	url := server.URLThrough(requests.proxy.Endpoint, bucket, prefix)

	dir := t.TempDir()
	jobs, trust := cronJobs(t), ""
	for name := range jobs {
		trust += signer(t, filepath.Join(dir, name+".key"))
	}
	write(t, filepath.Join(dir, "trust"), trust)
	for range 3 {
		jobs["backup"].run(t, 0, map[string]string{
			"REQUORUM_SIGNING_KEY": filepath.Join(dir, "backup.key"), "REQUORUM_TRUST": filepath.Join(dir, "trust"),
			"REQUORUM_REPO": url, "ETCDCTL_ENDPOINTS": c.Endpoints()[0], "ETCDCTL_CACERT": "", "ETCDCTL_CERT": "", "ETCDCTL_KEY": "",
			"REQUORUM_RECIPIENT": recipient(t, dir),
		}, nil, keysOf("agent-"+bucket)...)
	}
	jobs["verify"].run(t, 0, map[string]string{"REQUORUM_SIGNING_KEY": filepath.Join(dir, "verify.key"), "REQUORUM_TRUST": filepath.Join(dir, "trust"), "REQUORUM_REPO": url, "REQUORUM_SCRATCH_DIR": dir},
		[]string{"/etc/age/identity.txt", filepath.Join(dir, "identity.txt")}, keysOf("verifier-"+bucket)...)

	_, err := c.Client(t).Put(t.Context(), "/"+bucket, "x")
	require.NoError(t, err)
	archive := []string{"agent", "--once", "--data-dir", c.Member(0).DataDir, "--endpoints", c.Endpoints()[0], "--repo", url, "--spool-dir", filepath.Join(dir, "spool"), "--recipient", recipient(t, dir)}
	must(t, keysOf("agent-"+bucket), storetest.Requorum(t), archive...)
	must(t, keysOf("agent-"+bucket), storetest.Requorum(t), "restore", "--latest", "--repo", url, "--identity", filepath.Join(dir, "identity.txt"), "--to-snapshot", filepath.Join(dir, "restored.db"))

	must(t, keysOf("operator-"+bucket), storetest.Requorum(t), "pin", "latest", "--reason", "kept", "--repo", url)
	for _, name := range stored(t, sinkOf(t, url, "operator-"+bucket)) {
		if _, id, err := repository.ParsePinName(name); err == nil {
			must(t, keysOf("operator-"+bucket), storetest.Requorum(t), "unpin", id, "--repo", url)
		}
	}

	operator := sinkOf(t, url, "operator-"+bucket)
	agent, verifier, pruner, merger := sinkOf(t, url, "agent-"+bucket), sinkOf(t, url, "verifier-"+bucket), sinkOf(t, url, "pruner-"+bucket), sinkOf(t, url, "merger-"+bucket)
	names := stored(t, agent)
	kinds := map[string]string{}
	for _, name := range names {
		for _, kind := range []string{"requorum.json", "timelines/", "/full/", "/l0/", "verdicts/", "/manifest.json"} {
			if strings.Contains(name, kind) {
				kinds[kind] = name
			}
		}
	}
	if len(kinds) != 6 {
		t.Fatalf("not every kind is stored: %v", names)
	}
	timeline, _, _ := strings.Cut(kinds["/l0/"], "/")
	for kind, name := range kinds {
		expectDenied(t, "agent deletes", name, agent.Delete(t.Context(), name))
		expectDenied(t, "verifier deletes", name, verifier.Delete(t.Context(), name))
		if kind != "/l0/" {
			expectDenied(t, "merger deletes", name, merger.Delete(t.Context(), name))
		}
	}
	for _, name := range []string{"requorum.json", kinds["timelines/"]} {
		expectDenied(t, "pruner deletes", name, pruner.Delete(t.Context(), name))
	}
	for _, name := range []string{timeline + "/superseded.json", timeline + "/superseded-2.json", "pruned/x", "pins/x"} {
		_, err := sinks.Put(t.Context(), agent, name, []byte("x"), sinks.CreateOptions{})
		expectDenied(t, "agent writes", name, err)
	}
	for _, name := range []string{timeline + "/superseded-9.json", "pins/x"} {
		_, err = sinks.Put(t.Context(), operator, name, []byte("x"), sinks.CreateOptions{})
		require.NoError(t, err, "operator writes %s", name)
	}
	for _, name := range []string{kinds["/manifest.json"], timeline + "/superseded-9.json"} {
		expectDenied(t, "operator deletes", name, operator.Delete(t.Context(), name))
	}
	require.NoError(t, operator.Delete(t.Context(), "pins/x"), "operator unpins")
	for _, name := range []string{timeline + "/full/x/snapshot.zst", timeline + "/l0/x", timeline + "/superseded.json", "timelines/x.json", "pruned/x"} {
		_, err := sinks.Put(t.Context(), verifier, name, []byte("x"), sinks.CreateOptions{})
		expectDenied(t, "verifier writes", name, err)
	}
	for _, name := range []string{timeline + "/full/x/snapshot.zst", timeline + "/l0/x", timeline + "/superseded.json", "timelines/x.json", "verdicts/x", "pins/x"} {
		_, err := sinks.Put(t.Context(), pruner, name, []byte("x"), sinks.CreateOptions{})
		expectDenied(t, "pruner writes", name, err)
	}
	_, err = sinks.Put(t.Context(), sinkOf(t, server.URLThrough(requests.proxy.Endpoint, bucket, "teams/other"), "agent-"+bucket), "x", []byte("x"), sinks.CreateOptions{})
	require.Error(t, err, "agent writes beside the prefix")

	if e := run(t, append(keysOf("agent-"+bucket), "REQUORUM_REPO="+url), storetest.Requorum(t), "prune", "--keep-last", "1"); e.code == 0 || !strings.Contains(e.text, "s3:DeleteObject") {
		t.Errorf("who backs up prunes: %d %s", e.code, e.text)
	}
	jobs["prune"].run(t, 0, map[string]string{"REQUORUM_SIGNING_KEY": filepath.Join(dir, "prune.key"), "REQUORUM_TRUST": filepath.Join(dir, "trust"), "REQUORUM_REPO": url}, nil, keysOf("pruner-"+bucket)...)
	text := must(t, append(keysOf("pruner-"+bucket), "REQUORUM_REPO="+url), storetest.Requorum(t), "prune", "--keep-last", "1")
	left := 0
	for _, name := range stored(t, agent) {
		if strings.HasSuffix(name, "/manifest.json") {
			left++
		}
	}
	// The newest, and the one that was proved: the same here.
	if left != 1 {
		t.Errorf("%d backups are left after\n%s", left, text)
	}
	for _, name := range []string{timeline + "/l1/x", timeline + "/l2/x", timeline + "/marks/x", "scratch/x"} {
		_, err := sinks.Put(t.Context(), agent, name, []byte("x"), sinks.CreateOptions{})
		require.NoError(t, err, "agent writes %s", name)
		expectDenied(t, "agent deletes", name, agent.Delete(t.Context(), name))
		require.NoError(t, merger.Delete(t.Context(), name), "merger deletes %s", name)
	}
	require.NoError(t, merger.Delete(t.Context(), kinds["/l0/"]), "merger deletes %s", kinds["/l0/"])
	// In parts, to the end and given up.
	large := make([]byte, 40<<20)
	_, err = sinks.Put(t.Context(), agent, timeline+"/full/x/snapshot.zst", large, sinks.CreateOptions{})
	require.NoError(t, err)
	w, err := agent.Create(t.Context(), timeline+"/full/y/snapshot.zst", sinks.CreateOptions{})
	require.NoError(t, err)
	_, err = w.Write(large)
	require.NoError(t, errors.Join(err, w.Abort()))
	require.Empty(t, server.Uploads(t, bucket))
	requests.check(t, bucket, prefix, users, map[string][]string{
		"agent-" + bucket:    {"requorum.json", "timelines/*", "*/full/*/manifest.json", "*/full/x/snapshot.zst", "*/l0/*"},
		"verifier-" + bucket: {"verdicts/*"},
		"pruner-" + bucket:   {"pruned/*"},
		"operator-" + bucket: {"*/superseded*", "pins/*"},
	})
	// Where versions are kept nobody's key destroys anything.
	hidden := strings.Join(server.Versions(t, bucket, prefix+"/"+kinds["/l0/"]), "\n")
	if (bucket == "kept") != (strings.Count(hidden, "\n") == 1 && strings.HasSuffix(hidden, "(marker)")) {
		t.Errorf("after the merger's delete there is %q", hidden)
	}
}

func expectDenied(t *testing.T, what, name string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "lack the right") {
		t.Errorf("%s %s: %v, want it denied", what, name, err)
	}
}

// recipient makes an age identity in a file, once, and gives its recipient.
func recipient(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "identity.txt")
	if _, err := os.Stat(file); err != nil {
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		write(t, file, identity.String()+"\n")
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	identity, err := age.ParseX25519Identity(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return identity.Recipient().String()
}
