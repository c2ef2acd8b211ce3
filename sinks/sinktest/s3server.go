package sinktest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
	process *process
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
func (s *S3Server) Kill() { s.process.kill() }

// Restart starts a killed server again: same address, same files.
func (s *S3Server) Restart(t testing.TB) { s.process.start(t) }

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
		HTTPClient:   clientTrusting(s.CAFile),
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

// process is a server's process, which can be killed and started again.
type process struct {
	command func() *exec.Cmd
	// ready is a URL that is answered with less than 500 once the server serves.
	ready  string
	client *http.Client
	log    string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// start starts the server and waits until it serves.
func (p *process) start(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = storetest.WithParent(syscall.SIGKILL)
	require.NoError(t, cmd.Start(), "start %s", cmd.Path)
	p.cmd = cmd
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.Now().Add(startDeadline)
	for {
		resp, err := p.client.Get(p.ready)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode < 500 {
				return
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		select {
		case end := <-ended:
			t.Fatalf("%s ended at once: %v\n%s", cmd.Path, end, p.output())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve after %s: %v\n%s", cmd.Path, startDeadline, err, p.output())
		}
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("kill %s: %v", p.cmd.Path, err))
	}
	for p.cmd.Process.Signal(syscall.Signal(0)) == nil {
		time.Sleep(time.Millisecond)
	}
	p.cmd = nil
}

func (p *process) output() string {
	out, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(out)
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

// environ is the environment without what would steer a server or the SDK.
func environ(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "AWS_") && !strings.HasPrefix(e, "VGW_") && !strings.HasPrefix(e, "MINIO_") && !strings.HasPrefix(e, "RCLONE_") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}

// certificates makes an authority and a certificate of 127.0.0.1 that it
// signed, and returns the files' paths: authority, certificate, key.
func certificates(t testing.TB) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &caKey.PublicKey, caKey)
	require.NoError(t, err)
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, &serverKey.PublicKey, caKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(serverKey)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", serverDER), write("key.pem", "PRIVATE KEY", keyDER)
}

// clientTrusting is an HTTP client that trusts the authority in the file; the
// system's where it is empty.
func clientTrusting(caFile string) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		data, err := os.ReadFile(caFile)
		if err != nil {
			panic(err) // the test wrote it a moment ago
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(data)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &http.Client{Transport: transport}
}
