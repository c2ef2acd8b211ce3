package s3_test

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/s3"
)

func TestParseURLReadsEveryParameter(t *testing.T) {
	const full = "s3://bucket/a/b?region=eu-central-1&endpoint=https%3A%2F%2Fs3.example%3A9000&path-style=true&ca=%2Fetc%2Fca.pem&profile=backup" +
		"&storage-class=STANDARD_IA&sse=aws:kms&kms-key=key-1&object-lock=COMPLIANCE&retention=30d"
	want := s3.Config{
		Bucket: "bucket", Prefix: "a/b", Region: "eu-central-1", Endpoint: "https://s3.example:9000", PathStyle: true, CAFile: "/etc/ca.pem", Profile: "backup",
		StorageClass: "STANDARD_IA", Encryption: "aws:kms", KMSKey: "key-1", LockMode: "COMPLIANCE", Retention: 720 * time.Hour,
	}
	got, err := s3.ParseURL(full)
	require.NoError(t, err)
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	again, err := s3.ParseURL(got.String())
	if err != nil || again != want {
		t.Errorf("%s is read as %+v, %v", got, again, err)
	}
	if c, err := s3.ParseURL("s3://bucket"); err != nil || c.Prefix != "" {
		t.Errorf("without a prefix: %+v, %v", c, err)
	}
}

// TestPromise4ParseURLRefuses: what is not supported is an error that says
// what and, for secrets, does not repeat them.
func TestPromise4ParseURLRefuses(t *testing.T) {
	for url, part := range map[string]string{
		"s3://bucket/p?colour=red":                                        `unknown parameter "colour"; known are ca, endpoint, insecure`,
		"s3://bucket/p?region=a&region=b":                                 "given twice",
		"s3://bucket/p?region=":                                           "empty",
		"s3://bucket/p?path-style=maybe":                                  "neither true nor false",
		"s3://bucket/p?sse=AES512":                                        "known are AES256 and aws:kms",
		"s3://bucket/p?kms-key=k":                                         "without sse=aws:kms",
		"s3://bucket/p?sse=AES256&kms-key=k":                              "without sse=aws:kms",
		"s3://bucket/p?object-lock=GOVERNANCE":                            "without a retention",
		"s3://bucket/p?retention=1h":                                      "without object-lock",
		"s3://bucket/p?object-lock=SOME&retention=1h":                     "known are GOVERNANCE and COMPLIANCE",
		"s3://bucket/p?object-lock=GOVERNANCE&retention=-1h":              "no duration",
		"s3://bucket/p?storage-class=GLACIER":                             "hours",
		"s3://bucket/p?endpoint=http://s3.example":                        "plain http",
		"s3://bucket/p?endpoint=https://s3.example&insecure=true":         "contradicts",
		"s3://bucket/p?insecure=true":                                     "without an endpoint",
		"s3://bucket/p?endpoint=s3.example":                               "https://host:port is expected",
		"s3://bucket/p?endpoint=https://s3.example/bucket":                "nothing else in it",
		"s3://bucket/p?endpoint=http://127.0.0.1:1&ca=/f":                 "no effect",
		"s3://bucket/../p":                                                "prefix",
		"s3://bu cket/p":                                                  "not a URL",
		"s3:///p":                                                         "bucket name",
		"https://bucket/p":                                                "s3://bucket/prefix",
		"s3://AKIA:hunter2hunter2@bucket/p":                               "never from a URL",
		"s3://bucket/p?access_key=hunter2hunter2":                         "never from a URL",
		"s3://bucket/p?secret-access-key=hunter2hunter2":                  "never from a URL",
		"s3://bucket/p?X-Amz-Security-Token=hunter2hunter2":               "never from a URL",
		"s3://bucket/p?endpoint=https://a:hunter2hunter2@s3.example":      "never from a URL",
		"s3://bucket/p?region=a;access_key=hunter2hunter2":                "cannot be read",
		"s3://bucket/p?endpoint=http://a:hunter2hunter2%25@s3.example:99": "URL",
	} {
		_, err := s3.ParseURL(url)
		switch {
		case err == nil:
			t.Errorf("%s is accepted", url)
		case !strings.Contains(err.Error(), part):
			t.Errorf("%s: %v, which does not say %q", url, err, part)
		case strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error repeats the secret: %v", url, err)
		}
	}
	for _, url := range []string{"s3://bucket/p?endpoint=http://127.0.0.1:9000", "s3://bucket/p?endpoint=http://[::1]:9000", "s3://bucket/p?endpoint=http://s3.example&insecure=true"} {
		_, err := s3.ParseURL(url)
		require.NoError(t, err, url)
	}
}

// TestSinkStringIsItsURL: what a plan keeps of a repository opens the same
// place on another host, and holds no secret.
func TestSinkStringIsItsURL(t *testing.T) {
	folder := t.TempDir()
	profiles, ca := filepath.Join(folder, "config"), filepath.Join(folder, "ca & more.pem")
	server := httptest.NewTLSServer(nil)
	server.Close()
	for path, data := range map[string][]byte{
		profiles: []byte("[profile backup]\naws_access_key_id = AKIAHUNTER2\naws_secret_access_key = hunter2hunter2\n"),
		ca:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	t.Setenv("AWS_CONFIG_FILE", profiles)
	for _, config := range []s3.Config{
		{Bucket: "bucket", Region: "eu-central-1"},
		{Bucket: "bucket", Prefix: "a/b", Endpoint: "http://s3.example:9000", Insecure: true, PathStyle: true},
		{
			Bucket: "bucket", Prefix: "a", Region: "eu-central-1", Endpoint: "https://s3.example:9000", PathStyle: true, CAFile: ca, Profile: "backup",
			StorageClass: "STANDARD_IA", Encryption: "aws:kms", KMSKey: "arn:aws:kms:r:1:key/k", LockMode: "COMPLIANCE", Retention: 36 * time.Hour,
		},
	} {
		s, err := s3.Open(context.Background(), config)
		require.NoError(t, err)
		defer s.Close()
		again, err := s3.ParseURL(s.String())
		if err != nil || again != config {
			t.Errorf("%s is read as\n%+v, want\n%+v; %v", s, again, config, err)
		}
		if strings.Contains(strings.ToLower(s.String()), "hunter2") {
			t.Errorf("%s holds a secret", s)
		}
	}
	// Nor does the error of what is refused when it is opened.
	for _, endpoint := range []string{"https://a:hunter2@s3.example", "https://a:hunter2%@s3.example"} {
		if _, err := s3.Open(context.Background(), s3.Config{Bucket: "bucket", Endpoint: endpoint}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("open: %v", err)
		}
	}
}
