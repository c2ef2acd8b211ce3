package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// doctor says of each role's key what it lacks, and what it could do without need, for
// the policies of deploy/s3 as they are; and it leaves nothing behind, but for the scratch
// object of a key that may not delete.
func TestDoctorKey(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "plain"}, {Name: "kept", Versioned: true}}})
	server.Setenv(t)
	for _, bucket := range []string{"plain", "kept"} {
		server.AddUser(t, bucket, "secret", bucket, "s3:GetBucketLocation")
		t.Run(bucket, func(t *testing.T) { expectDoctorKey(t, server, bucket) })
	}
}

func expectDoctorKey(t *testing.T, server *sinktest.S3Server, bucket string) {
	t.Setenv("AWS_ACCESS_KEY_ID", bucket)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	proxy := sinktest.NewFaultProxy(t, server.Endpoint)
	url := server.URLThrough(proxy.Endpoint, bucket, "p")
	config := func(url, jobs string) string {
		file := filepath.Join(t.TempDir(), "agent.yaml")
		require.NoError(t, os.WriteFile(file, []byte("name: m1\nrepository: {url: '"+url+"'}\nlisten: {address: '"+storetest.FreeAddress(t)+"'}\njobs: {"+jobs+"}\nretention: {any-point: 0s}\n"), 0o600))
		return file
	}
	allow := func(names ...string) {
		t.Helper()
		allow(t, server, bucket, bucket, deployedPolicies(t, bucket, "p", names...))
	}
	// examine gives what is found of the key, each as "verdict: text".
	examine := func(args ...string) []string {
		t.Helper()
		e := run(t, append([]string{"doctor", "--output", "json"}, args...)...)
		var all []string
		for _, c := range decode[doctorReport](t, e).Checks {
			if strings.HasPrefix(c.Check, "s3://") && strings.Contains(c.Text, "its key") {
				all = append(all, c.Verdict+": "+c.Text+" → "+c.Next)
			}
		}
		return all
	}
	const off = "full: {run: off}, divergence: {run: off}, "
	verifier := config(url, off+"checksum: {run: here}, structure: {run: here}, merge: {run: off}, prune: {run: off}")
	pruner := config(url, off+"checksum: {run: off}, structure: {run: off}, merge: {run: off}, prune: {run: here}")
	for _, c := range []struct {
		file     string
		policies []string
		want     []string // in this order, parts of what is found; none: nothing
	}{
		{verifier, []string{"verifier"}, nil},
		{pruner, []string{"pruner"}, nil},
		{verifier, []string{"agent"}, []string{"warning: its key may also put below timelines/, <timeline>/full/, <timeline>/l0/, <timeline>/l1/, <timeline>/marks/, <timeline>/gaps/, runner/: no job here needs that, and whoever steals the key could hide or destroy backups unnoticed"}},
		{verifier, []string{"pruner"}, []string{"failed: its key may not put below verdicts/, which the jobs of this agent need → give it the rights of deploy/s3/verifier.json", "warning: its key may also put below pruned/; delete below <timeline>/l0/, <timeline>/marks/, <timeline>/full/"}},
		{verifier, []string{"verifier", "operator"}, []string{"warning: its key may also put below pins/, <timeline>/superseded-; delete below pins/: "}},
		{pruner, []string{"agent", "merger"}, []string{"failed: its key may not put below pruned/; delete below <timeline>/full/, <timeline>/l3/, <timeline>/gaps/, pruned/, verdicts/, claims/, jobs/, runner/, which", "warning: its key may also put below timelines/, "}},
	} {
		allow(c.policies...)
		found := examine("--agent-config", c.file)
		if len(found) != len(c.want) {
			t.Fatalf("%s with %v: %q", c.file, c.policies, found)
		}
		for i, want := range c.want {
			if !strings.HasPrefix(found[i], want) {
				t.Errorf("with %v: %q, want %q", c.policies, found[i], want)
			}
		}
	}

	// Without an agent: what the key is good for.
	here := []string{"--repo", url, "--endpoints", "http://" + storetest.FreeAddress(t)}
	for want, policies := range map[string][]string{
		"ok: its key has the rights of deploy/s3/agent.json and deploy/s3/verifier.json → ":                             {"agent"},
		"ok: its key has the rights of deploy/s3/verifier.json → ":                                                      {"verifier"},
		"ok: its key has the rights of deploy/s3/pruner.json and deploy/s3/merger.json → ":                              {"pruner"},
		"ok: its key has the rights of deploy/s3/agent.json and deploy/s3/verifier.json and deploy/s3/operator.json → ": {"agent", "operator"},
	} {
		allow(policies...)
		if found := examine(here...); !slices.Equal(found, []string{want}) {
			t.Errorf("%v: %q", policies, found)
		}
	}
	server.Allow(t, bucket, bucket, "s3:ListBucket", "s3:GetObject")
	if e := run(t, append([]string{"doctor"}, here...)...); !strings.Contains(e.Stdout, "who restores alone needs no more than to read") {
		t.Errorf("reading alone: %s", e)
	}

	// At Amazon a policy can keep a key from replacing anything.
	t.Setenv("AWS_ENDPOINT_URL_S3", proxy.Endpoint)
	atAmazon := config("s3://"+bucket+"/p?path-style=true&region=us-east-1", off+"checksum: {run: here}, structure: {run: here}, merge: {run: off}, prune: {run: off}")
	allow("verifier")
	if found := examine("--agent-config", atAmazon); len(found) != 1 || !strings.HasPrefix(found[0], "warning: its key may replace what is stored → add the statement NeverReplace") {
		t.Errorf("%q", found)
	}
	proxy.Add(sinktest.ProxyFault{Name: "NeverReplace", Times: -1, Do: sinktest.Refuse(http.StatusForbidden, "AccessDenied"), Match: func(r *http.Request) bool {
		return r.Method == http.MethodPut && r.Header.Get("If-None-Match") == ""
	}})
	if found := examine("--agent-config", atAmazon); len(found) != 0 {
		t.Errorf("%q", found)
	}
	proxy.AllFired(t)

	objects, err := server.Client().ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: &bucket})
	require.NoError(t, err)
	for _, o := range objects.Contents {
		if name := strings.TrimPrefix(*o.Key, "p/"); !strings.HasPrefix(name, "scratch/") && !strings.HasPrefix(name, ".probe/") {
			t.Errorf("%s is left", name)
		}
	}
	for _, v := range server.Versions(t, bucket, "") {
		if strings.HasSuffix(v, "(marker)") && !strings.HasPrefix(v, "p/scratch/") {
			t.Errorf("%s is left", v)
		}
	}
}

// statement is one of a policy.
type statement map[string]any

// deployedPolicies are the statements of policies in deploy/s3.
func deployedPolicies(t *testing.T, bucket, prefix string, names ...string) []statement {
	t.Helper()
	var all []statement
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "s3", name+".json"))
		require.NoError(t, err)
		var policy struct{ Statement []statement }
		require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer("BUCKET", bucket, "PREFIX", prefix).Replace(string(text))), &policy))
		for _, s := range policy.Statement {
			delete(s, "Sid") // the server keeps policies of 4 KiB at most
		}
		all = append(all, policy.Statement...)
	}
	return withoutConditions(all)
}

// withoutConditions leaves out what only Amazon knows.
func withoutConditions(statements []statement) []statement {
	return slices.DeleteFunc(statements, func(s statement) bool { return s["Condition"] != nil })
}

// allow makes statements the policy of a bucket, for one user.
func allow(t *testing.T, server *sinktest.S3Server, user, bucket string, statements []statement) {
	t.Helper()
	for _, s := range statements {
		s["Principal"] = map[string]any{"AWS": []string{user}} // in a policy of the user's own it is left out
	}
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	require.NoError(t, err)
	text := string(policy)
	if _, err := server.Client().PutBucketPolicy(t.Context(), &awss3.PutBucketPolicyInput{Bucket: &bucket, Policy: &text}); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
