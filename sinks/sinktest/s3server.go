package sinktest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// S3Server is a real S3 server on this machine, in a folder of the test's own.
// It ends with the test.
type S3Server struct {
	// Endpoint is its URL: http://127.0.0.1:PORT, or https with TLS.
	Endpoint string
	// Region is the one that it signs for.
	Region string
	// AccessKey and SecretKey are the administrator's.
	AccessKey, SecretKey string
	// CAFile holds the certificate that signed the server's; empty without TLS.
	CAFile string
	// Dir holds the server's files.
	Dir string

	binary  string
	command func() *exec.Cmd
	ready   string // a path that is answered with less than 500 once it serves
	client  *http.Client
	process *storetest.Process
}

// S3Bucket says how a test's bucket is to be made.
type S3Bucket struct {
	Name      string
	Versioned bool
	// ObjectLock makes a bucket whose objects can be locked; it is versioned
	// too.
	ObjectLock bool
}

// Kill ends the server at once, as a power cut would. Restart starts it again.
func (s *S3Server) Kill() { s.process.Kill() }

// Restart starts a killed server again: same address, same files.
func (s *S3Server) Restart(t testing.TB) { s.start(t) }

// URL is what a sink opens: the bucket and prefix on this server, and any more
// query parameters ("sse=AES256").
func (s *S3Server) URL(bucket, prefix string, more ...string) string {
	return s.URLThrough(s.Endpoint, bucket, prefix, more...)
}

// URLThrough is URL with another endpoint, such as a FaultProxy's.
func (s *S3Server) URLThrough(endpoint, bucket, prefix string, more ...string) string {
	u := "s3://" + bucket + "/" + prefix + "?path-style=true&region=" + s.Region + "&endpoint=" + url.QueryEscape(endpoint)
	if s.CAFile != "" {
		u += "&ca=" + url.QueryEscape(s.CAFile)
	}
	for _, m := range more {
		u += "&" + m
	}
	return u
}

// Setenv gives the administrator's credentials to the whole process for the
// time of the test, the way a user would.
func (s *S3Server) Setenv(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// Credentials are the administrator's.
func (s *S3Server) Credentials() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, "")
}

// Client speaks to the server as its administrator, past every sink.
func (s *S3Server) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint),
		Region:       s.Region,
		UsePathStyle: true,
		Credentials:  s.Credentials(),
		HTTPClient:   s.client,
	})
}

// MakeBucket makes a bucket.
func (s *S3Server) MakeBucket(t testing.TB, b S3Bucket) {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Client().CreateBucket(ctx, &s3.CreateBucketInput{
		Bucket: &b.Name, ObjectLockEnabledForBucket: aws.Bool(b.ObjectLock),
	}); err != nil {
		t.Fatalf("make bucket %s on %s: %v", b.Name, s.Endpoint, err)
	}
	if !b.Versioned || b.ObjectLock {
		return
	}
	if _, err := s.Client().PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket:                  &b.Name,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	}); err != nil {
		t.Fatalf("make bucket %s on %s versioned: %v", b.Name, s.Endpoint, err)
	}
}

// Uploads lists the multipart uploads that are begun and neither completed nor
// aborted: "key upload-id".
func (s *S3Server) Uploads(t testing.TB, bucket string) []string {
	t.Helper()
	var found []string
	pages := s3.NewListMultipartUploadsPaginator(s.Client(), &s3.ListMultipartUploadsInput{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		require.NoError(t, err, "list the uploads of %s", bucket)
		for _, u := range page.Uploads {
			found = append(found, aws.ToString(u.Key)+" "+aws.ToString(u.UploadId))
		}
	}
	return found
}

// Versions lists every version and every delete marker of a bucket: "key
// version" and "key version (marker)".
func (s *S3Server) Versions(t testing.TB, bucket, prefix string) []string {
	t.Helper()
	var found []string
	pages := s3.NewListObjectVersionsPaginator(s.Client(), &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		require.NoError(t, err, "list the versions of %s", bucket)
		for _, v := range page.Versions {
			found = append(found, aws.ToString(v.Key)+" "+aws.ToString(v.VersionId))
		}
		for _, m := range page.DeleteMarkers {
			found = append(found, aws.ToString(m.Key)+" "+aws.ToString(m.VersionId)+" (marker)")
		}
	}
	return found
}

// startDeadline bounds how long a server may take until it answers; the slow
// one is minio on a busy machine.
const startDeadline = 60 * time.Second

// start starts the server and waits until it serves.
func (s *S3Server) start(t testing.TB) {
	t.Helper()
	var err error
	s.process, err = storetest.StartProcess(s.command(), filepath.Join(filepath.Dir(s.Dir), "log"))
	require.NoError(t, err)
	for deadline := time.Now().Add(startDeadline); ; time.Sleep(20 * time.Millisecond) {
		resp, err := s.client.Get(s.Endpoint + s.ready)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode < 500 {
				return
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		if !s.process.Running() || time.Now().After(deadline) {
			t.Fatalf("%s does not serve: %v\n%s", s.binary, err, storetest.Tail(s.process.Log, 50))
		}
	}
}

// slowTool is tool for what takes minutes to build: that is done with REQUORUM_CI=1
// only, and the test is skipped otherwise, and with -short.
func slowTool(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("%s is for the long form; versitygw serves the short one", name)
	}
	if os.Getenv("REQUORUM_CI") != "1" {
		path := filepath.Join(storetest.Root(t), ".cache", "bin", name)
		if _, err := os.Stat(path); err != nil {
			t.Skipf("SKIPPED: the test server %s is not built: run .tools/build %s (it takes minutes), or set REQUORUM_CI=1", name, name)
		}
		return path
	}
	return tool(t, name)
}

// tool is the path of a test server, which .tools/build makes.
func tool(t testing.TB, name string) string {
	t.Helper()
	root := storetest.Root(t)
	path := filepath.Join(root, ".cache", "bin", name)
	if _, err := os.Stat(path); err == nil && os.Getenv("REQUORUM_CI") != "1" {
		return path
	}
	if out, err := exec.Command(filepath.Join(root, ".tools", "build"), name).CombinedOutput(); err != nil {
		t.Fatalf("build the test server %s: %v\n%s", name, err, out)
	}
	return path
}
