package s3_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

func keys(access, secret, token string) func(*s3.Config) {
	return func(c *s3.Config) { c.Credentials = credentials.NewStaticCredentialsProvider(access, secret, token) }
}

// TestErrorsOfACutRequestNameTheReason: who gives a request a time learns, when
// that is over, what its attempts failed with.
func TestErrorsOfACutRequestNameTheReason(t *testing.T) {
	t.Parallel()
	server := versity(t)
	slow := sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{Name: "refuse", Times: -1, Do: sinktest.Refuse(503, "SlowDown")}).Endpoint
	for name, test := range map[string]struct {
		endpoint string
		want     string
	}{
		"refused": {"http://127.0.0.1:1", "connection refused"},
		"503":     {slow, "throttles, and did so each time"},
		"silence": {sinktest.Black(t), "without an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, server, server.URLThrough(test.endpoint, "plain", "p"), trying(time.Hour, 20*time.Millisecond))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Stat(ctx, "a/b")
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "the time for it was over") || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}

// TestErrorsWhileAnotherProbes: who waits for another's probe learns what it fails
// with.
func TestErrorsWhileAnotherProbes(t *testing.T) {
	t.Parallel()
	server := versity(t)
	s := open(t, server, server.URLThrough("http://127.0.0.1:1", "plain", "p"), trying(time.Hour, 20*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Abilities(ctx)
		done <- err
	}()
	time.Sleep(200 * time.Millisecond)
	waiting, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	_, err := s.Abilities(waiting)
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "it was cancelled; until then: nothing listens there") || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

var pathStyleHint = regexp.MustCompile(`(add|remove) path-style=true`)

// TestErrorsNameTheCauseAndTheNextStep, of all five kinds of calls, as real
// servers and real networks produce them.
func TestErrorsNameTheCauseAndTheNextStep(t *testing.T) {
	t.Parallel()
	server := versity(t)
	tls := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{TLS: true, Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
	server.AddUser(t, "nobody", "nobody-secret", "plain", "s3:GetBucketLocation")
	other := func(do sinktest.ProxyAction) string {
		return sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{Name: "refuse", Times: -1, Do: do}).Endpoint
	}
	brief := trying(300*time.Millisecond, 100*time.Millisecond)
	url := func(endpoint, bucket string) string { return server.URLThrough(endpoint, bucket, "p") }
	for name, test := range map[string]struct {
		url    string
		change func(*s3.Config)
		want   []string
		kind   error
	}{
		"unknown access key": {url(server.Endpoint, "plain"), keys("unknown", "hunter2hunter2", ""), []string{"access key ID is not known", "AWS_ACCESS_KEY_ID"}, sinks.ErrDenied},
		"wrong secret":       {url(server.Endpoint, "plain"), keys("root", "hunter2hunter2", ""), []string{"secret key does not belong", "AWS_SECRET_ACCESS_KEY"}, sinks.ErrDenied},
		"no rights":          {url(server.Endpoint, "plain"), keys("nobody", "nobody-secret", ""), []string{"lack the right s3:"}, sinks.ErrDenied},
		"missing bucket":     {url(server.Endpoint, "missing"), nil, []string{"bucket missing does not exist at http", "create it"}, nil},
		"no credentials": {url(server.Endpoint, "plain"), func(c *s3.Config) { c.Credentials = nil },
			[]string{"no usable credentials", "AWS_ACCESS_KEY_ID"}, nil},
		"unknown authority":  {server.URLThrough(tls.Endpoint, "plain", "p"), nil, []string{"certificate is not trusted", "ca=FILE"}, nil},
		"http, not https":    {server.URLThrough(strings.Replace(server.Endpoint, "http:", "https:", 1), "plain", "p"), nil, []string{"speaks plain http"}, nil},
		"connection refused": {server.URLThrough("http://127.0.0.1:1", "plain", "p"), nil, []string{"nothing listens there"}, nil},
		"no such host":       {server.URLThrough("https://s3.invalid", "plain", "p"), nil, []string{"s3.invalid cannot be resolved"}, nil},
		"bucket in the host name": {strings.Replace(server.URLThrough("https://s3.invalid", "plain", "p"), "path-style=true&", "", 1), nil,
			[]string{"plain.s3.invalid cannot be resolved", "add path-style=true"}, nil},
		"path-style refused":            {url(other(sinktest.Refuse(400, "InvalidRequest")), "plain"), nil, []string{"status 400", "remove path-style=true"}, nil},
		"value refused":                 {url(other(sinktest.Refuse(400, "InvalidArgument")), "plain"), nil, []string{"status 400"}, nil},
		"path-style refused by Alibaba": {url(other(sinktest.Refuse(403, "SecondLevelDomainForbidden")), "plain"), nil, []string{"remove path-style=true"}, nil},
		"silence": {server.URLThrough(sinktest.Black(t), "plain", "p"), func(c *s3.Config) { c.Stall = 100 * time.Millisecond },
			[]string{"does not answer in time"}, nil},
		"clock skew":    {url(other(clockAhead), "plain"), nil, []string{"clocks", "set the clock", "the server's says"}, nil},
		"expired token": {url(other(sinktest.Refuse(400, "ExpiredToken")), "plain"), keys("a", "hunter2hunter2", "hunter2token"), []string{"session token has expired", "get new credentials"}, sinks.ErrDenied},
		"other region": {url(other(func(w http.ResponseWriter, _ *http.Request, _ *httputil.ReverseProxy) {
			w.Header().Set("X-Amz-Bucket-Region", "eu-north-1")
			w.WriteHeader(http.StatusMovedPermanently)
		}), "plain"), nil, []string{"another region than us-east-1", "region=eu-north-1"}, nil},
		"throttled for ever": {url(other(sinktest.Refuse(503, "SlowDown")), "plain"), nil, []string{"throttles", "for 300ms"}, nil},
		"broken server":      {url(other(sinktest.Refuse(500, "InternalError")), "plain"), nil, []string{"status 500"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := open(t, server, test.url, brief)
			if test.change != nil {
				s = open(t, server, test.url, brief, test.change)
			}
			check := func(call string, err error) {
				t.Helper()
				if err == nil {
					t.Errorf("%s succeeds", call)
					return
				}
				t.Logf("%s: %v", call, err)
				for _, part := range test.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %v\nwhich does not say %q", call, err, part)
					}
				}
				if is := strings.Contains(strings.Join(test.want, " "), "path-style"); pathStyleHint.MatchString(err.Error()) != is {
					t.Errorf("%s: %v\nwhich has a hint about path-style: %t", call, err, !is)
				}
				if test.kind != nil && !errors.Is(err, test.kind) {
					t.Errorf("%s: %v is not %v", call, err, test.kind)
				}
				if errors.Is(err, sinks.ErrNotFound) {
					t.Errorf("%s: %v claims that there is no such object", call, err)
				}
				for _, secret := range []string{"hunter2", "Signature=", "nobody-secret", "root-secret"} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("%s: the error holds a secret (%s): %v", call, secret, err)
					}
				}
			}
			_, err := s.Stat(ctx, "a/b")
			check("Stat", err)
			_, err = store(s, "a/b", []byte("x"))
			check("Put", err)
			_, err = s.Open(ctx, "a/b", 0, -1)
			check("Open", err)
			_, err = s.Abilities(ctx)
			check("Abilities", err)
			check("Delete", s.Delete(ctx, "a/b"))
			for _, err = range s.List(ctx, "", "") {
			}
			check("List", err)
		})
	}
}

// clockAhead answers RequestTimeTooSkewed with a Date that is three hours ahead.
func clockAhead(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
	w.Header().Set("Date", time.Now().Add(3*time.Hour).UTC().Format(http.TimeFormat))
	sinktest.Refuse(http.StatusForbidden, "RequestTimeTooSkewed")(w, r, server)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for part, c := range map[string]s3.Config{
		"no region is known":  {Bucket: "bucket"},
		"ca names":            {Bucket: "bucket", Region: "r", CAFile: "/missing.pem"},
		"no certificate":      {Bucket: "bucket", Region: "r", CAFile: "errors_test.go"},
		"profile":             {Bucket: "bucket", Region: "r", Profile: "missing"},
		"without a retention": {Bucket: "bucket", Region: "r", LockMode: "GOVERNANCE"},
	} {
		if _, err := s3.Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: %v, which does not say %q", c, err, part)
		}
	}
}

// TestAuthorities: ca= and AWS_CA_BUNDLE both work.
func TestAuthorities(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{TLS: true, Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
	_, err := store(open(t, server, server.URL("plain", "by-parameter")), "object", nil)
	require.NoError(t, err)
	t.Setenv("AWS_CA_BUNDLE", server.CAFile)
	_, err = store(open(t, server, server.URL("plain", "by-environment"), func(c *s3.Config) { c.CAFile = "" }), "object", nil)
	require.NoError(t, err)
}

// TestForeignObjectsAreNotListed: what other tools put there has no name here.
func TestForeignObjectsAreNotListed(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{
		"<Contents><Key>p/folder/</Key><Size>0</Size></Contents><Contents><Key>p/object</Key><Size>1</Size></Contents><Contents><Key>p/space here</Key><Size>1</Size></Contents>",
	} {
		fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`<?xml version="1.0"?><ListBucketResult><Name>plain</Name><IsTruncated>false</IsTruncated>` + keys + `</ListBucketResult>`))
		}))
		defer fake.Close()
		s, err := s3.Open(context.Background(), s3.Config{Bucket: "plain", Prefix: "p", Endpoint: fake.URL, PathStyle: true, Credentials: aws.AnonymousCredentials{}})
		require.NoError(t, err)
		var names []string
		for o, err := range s.List(context.Background(), "", "") {
			require.NoError(t, err)
			names = append(names, o.Name)
		}
		if strings.Join(names, " ") != "object" {
			t.Errorf("listed %q", names)
		}
	}
}
