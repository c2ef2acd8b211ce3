package sinktest

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// VersityGWOptions say what server a test needs.
type VersityGWOptions struct {
	// TLS serves https, with a certificate that S3Server.CAFile signed.
	TLS bool
	// VirtualDomain is the host name before which it takes a bucket's name.
	VirtualDomain string
	// Buckets are made at the start.
	Buckets []S3Bucket
}

// StartVersityGW starts versitygw: the S3 server that tests use unless they
// need something else. It has conditional puts, checksums, versioning, object
// lock and users; it ignores a request for encryption without a word.
func StartVersityGW(t testing.TB, opts VersityGWOptions) *S3Server {
	t.Helper()
	s := newServer(t, tool(t, "versitygw"), "/healthz")
	// The two folders must not share a beginning of their names.
	dir := filepath.Dir(s.Dir)
	versions, iam := filepath.Join(dir, "versions"), filepath.Join(dir, "iam")
	for _, d := range []string{versions, iam} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	args := []string{
		"--port", s.address(), "--quiet", "--health", s.ready, "--keep-alive",
		// Without an IAM folder an unknown key would be answered 404.
		"--iam-dir", iam, "--iam-cache-disable",
	}
	if opts.VirtualDomain != "" {
		args = append(args, "--virtual-domain", opts.VirtualDomain)
	}
	if opts.TLS {
		authority := storetest.NewAuthority(t)
		cert, key := authority.Issue(t, "versitygw", 24*time.Hour)
		args = append(args, "--cert", cert, "--key", key)
		s.Endpoint, s.CAFile = "https://"+s.address(), authority.CA
		s.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: authority.Trusted()}
	}
	s.command = func() *exec.Cmd {
		cmd := exec.Command(s.binary, append(args, "posix", "--versioning-dir", versions, s.Dir)...)
		cmd.Env = storetest.Environment(dir, "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		cmd.Dir = dir
		return cmd
	}
	s.start(t)
	for _, b := range opts.Buckets {
		s.MakeBucket(t, b)
	}
	return s
}

// newServer is one that has a folder and an address, and does not run yet. It ends with the
// test.
func newServer(t testing.TB, binary, ready string) *S3Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "objects")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := &S3Server{
		Endpoint: "http://" + storetest.FreeAddress(t), Region: "us-east-1", AccessKey: "root", SecretKey: "root-secret",
		Dir: dir, binary: binary, ready: ready, client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
	}
	t.Cleanup(s.Kill)
	return s
}

func (s *S3Server) address() string { return s.Endpoint[strings.Index(s.Endpoint, "://")+3:] }

// AddUser makes a versitygw user who may do in bucket what actions name
// ("s3:GetObject") and nothing else; bucket policies replace one another, so a
// test has one such user a bucket.
func (s *S3Server) AddUser(t testing.TB, access, secret, bucket string, actions ...string) {
	t.Helper()
	cmd := exec.Command(s.binary, "admin", "--endpoint-url", s.Endpoint, "--allow-insecure",
		"create-user", "--access", access, "--secret", secret, "--role", "user")
	cmd.Env = storetest.Environment(filepath.Dir(s.Dir), "ADMIN_ACCESS_KEY="+s.AccessKey, "ADMIN_SECRET_KEY="+s.SecretKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make user %s: %v\n%s", access, err, out)
	}
	s.Allow(t, access, bucket, actions...)
}

// Allow replaces what a user may do in bucket.
func (s *S3Server) Allow(t testing.TB, access, bucket string, actions ...string) {
	t.Helper()
	var onBucket, onObjects []string
	for _, a := range actions {
		if strings.HasPrefix(a, "s3:List") && !strings.HasSuffix(a, "Parts") || strings.HasPrefix(a, "s3:GetBucket") {
			onBucket = append(onBucket, a)
		} else {
			onObjects = append(onObjects, a)
		}
	}
	statement := func(actions []string, resource string) string {
		return fmt.Sprintf(`{"Effect":"Allow","Principal":{"AWS":[%q]},"Action":["%s"],"Resource":["arn:aws:s3:::%s"]}`,
			access, strings.Join(actions, `","`), resource)
	}
	var statements []string
	if len(onBucket) > 0 {
		statements = append(statements, statement(onBucket, bucket))
	}
	if len(onObjects) > 0 {
		statements = append(statements, statement(onObjects, bucket+"/*"))
	}
	policy := `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
	if _, err := s.Client().PutBucketPolicy(context.Background(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: &policy}); err != nil {
		t.Fatalf("set the policy of %s: %v\n%s", bucket, err, policy)
	}
}

// StartRclone starts `rclone serve s3`: the server that lacks what requorum
// must notice. It answers 200 to a conditional put and overwrites, and takes
// wrong checksums. Its buckets are made by MakeBucket.
func StartRclone(t testing.TB) *S3Server {
	t.Helper()
	s := newServer(t, slowTool(t, "rclone"), "")
	s.command = func() *exec.Cmd {
		cmd := exec.Command(s.binary, "serve", "s3", "--addr", s.address(), "--auth-key", s.AccessKey+","+s.SecretKey, "--vfs-cache-mode", "off", s.Dir)
		cmd.Env = storetest.Environment(filepath.Dir(s.Dir))
		return cmd
	}
	s.start(t)
	return s
}

// StartMinio starts minio with a key of its own for server-side encryption.
func StartMinio(t testing.TB) *S3Server {
	t.Helper()
	s := newServer(t, slowTool(t, "minio"), "/minio/health/ready")
	s.AccessKey, s.SecretKey = "minio-root", "minio-root-secret"
	key := base64.StdEncoding.EncodeToString(Random(1, 32))
	s.command = func() *exec.Cmd {
		cmd := exec.Command(s.binary, "server", "--quiet", "--address", s.address(), "--console-address", "127.0.0.1:0", s.Dir)
		cmd.Env = storetest.Environment(filepath.Dir(s.Dir), "MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey,
			"MINIO_KMS_SECRET_KEY=test-key:"+key, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
		return cmd
	}
	s.start(t)
	return s
}
