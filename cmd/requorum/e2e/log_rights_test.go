package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

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

// TestDeployedRights: with the rights of deploy/s3/agent.json, and none besides,
// backups are taken and restored and the log is archived, in a bucket with
// versions and in one without; nothing that was stored can be deleted. With those of
// merger.json added, what merging removes can be, and nothing else.
func TestDeployedRights(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "plain"}, {Name: "versioned", Versioned: true}}})
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	putSome(t, c, "/some/", 20)
	for _, bucket := range []string{"plain", "versioned"} {
		t.Run(bucket, func(t *testing.T) { expectRights(t, server, c, bucket) })
	}
}

func expectRights(t *testing.T, server *sinktest.S3Server, c *storetest.Cluster, bucket string) {
	const prefix = "teams/etcd"
	name, secret := "backup-"+bucket, "backup-secret"
	server.AddUser(t, name, secret, bucket, "s3:GetBucketLocation")
	backup := deployedPolicies(t, bucket, prefix, "agent")
	merging := deployedPolicies(t, bucket, prefix, "merger")
	repo := server.URL(bucket, prefix)
	u := newUser(t, "AWS_ACCESS_KEY_ID="+name, "AWS_SECRET_ACCESS_KEY="+secret)
	if e := u.Run(t, backupArgs(c.Endpoints(), []string{repo})...); e.Code == exitOK || !strings.Contains(e.Stderr, "lack the right") {
		t.Fatalf("without any right: %s", e)
	}

	allow(t, server, name, bucket, backup)
	u.backup(t, c.Endpoints(), []string{repo}, "--read-back")
	acks := putSome(t, c, "/"+bucket+"/", 20)
	archive := []string{"archive", "--once", "--data-dir", c.Member(0).DataDir, "--endpoints", c.Endpoints()[0], "--repo", repo, "--spool-dir", u.Path("spool")}
	u.Must(t, exitOK, archive...)
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	outside := server.URL(bucket, "teams/other")
	if e := u.Run(t, backupArgs(c.Endpoints(), []string{outside})...); e.Code == exitOK {
		t.Errorf("a backup beside the prefix: %s", e)
	}

	config, err := s3.ParseURL(repo)
	require.NoError(t, err)
	config.Credentials = credentials.NewStaticCredentialsProvider(name, secret, "")
	config.Retry.For = time.Minute
	sink, err := s3.Open(t.Context(), config)
	require.NoError(t, err)
	defer sink.Close()
	// In parts, to the end and given up: rights of their own.
	large := make([]byte, 40<<20)
	_, err = sinks.Put(t.Context(), sink, "zz/full/large", large, sinks.CreateOptions{})
	require.NoError(t, err)
	w, err := sink.Create(t.Context(), "zz/full/given-up", sinks.CreateOptions{})
	require.NoError(t, err)
	_, err = w.Write(large)
	require.NoError(t, err)
	require.NoError(t, w.Abort(), "give an upload up")
	if left := server.Uploads(t, bucket); len(left) > 0 {
		t.Errorf("uploads are left: %v", left)
	}

	stored := map[string]string{} // by kind
	for o, err := range sink.List(t.Context(), "", "") {
		require.NoError(t, err)
		kind := "other"
		for _, k := range []string{"/l0/", "/full/", "timelines/"} {
			if strings.Contains(o.Name, k) {
				kind = k
			}
		}
		stored[kind] = o.Name
	}
	timeline, _, _ := strings.Cut(stored["/l0/"], "/")
	for _, made := range []string{timeline + "/l1/x", timeline + "/l2/x", timeline + "/marks/x", "scratch/x"} {
		_, err = sinks.Put(t.Context(), sink, made, []byte("x"), sinks.CreateOptions{})
		require.NoError(t, err)
		stored[made] = made
	}
	removable := func(kind string) bool { return kind != "/full/" && kind != "timelines/" && kind != "other" }
	expectDeletes(t, sink, stored, func(string) bool { return false })
	allow(t, server, name, bucket, append(backup, merging...))
	expectDeletes(t, sink, stored, removable)
	if bucket == "versioned" {
		// Nobody has the right to delete a version: what is deleted is hidden.
		if left := server.Versions(t, bucket, prefix+"/"+stored["/l0/"]); len(left) != 2 {
			t.Errorf("versions: %q, want the segment and what hides it", left)
		}
	}
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

// expectDeletes tries to delete an object of each kind.
func expectDeletes(t *testing.T, sink sinks.Sink, stored map[string]string, may func(kind string) bool) {
	t.Helper()
	for _, kind := range []string{"/l0/", "/full/", "timelines/", "other"} {
		if stored[kind] == "" {
			t.Fatalf("nothing of the kind %s is stored: %v", kind, stored)
		}
	}
	for kind, name := range stored {
		err := sink.Delete(t.Context(), name)
		if may(kind) && err != nil || !may(kind) && !errors.Is(err, sinks.ErrDenied) {
			t.Errorf("delete %s: %v; it may be: %v", name, err, may(kind))
		}
	}
}
