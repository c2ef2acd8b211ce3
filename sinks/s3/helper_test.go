package s3_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

// TestMain keeps the machine's own AWS settings out of the tests.
func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		os.Unsetenv(name)
	}
	os.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	os.Setenv("AWS_CONFIG_FILE", os.DevNull)
	os.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	os.Exit(m.Run())
}

// open opens what a URL names with a server's administrator's rights. change,
// when given, alters the configuration first.
func open(t *testing.T, server *sinktest.S3Server, url string, change ...func(*s3.Config)) *s3.Sink {
	t.Helper()
	c, err := s3.ParseURL(url)
	require.NoError(t, err)
	c.Credentials = server.Credentials()
	c.Retry = sinks.Retry{For: time.Minute, Longest: 20 * time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	s, err := s3.Open(context.Background(), c)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// fresh opens a new prefix of a bucket for each call.
func fresh(server *sinktest.S3Server, bucket string, more ...string) func(*testing.T) sinks.Sink {
	var n atomic.Int32
	return func(t *testing.T) sinks.Sink {
		t.Helper()
		return open(t, server, server.URL(bucket, fmt.Sprintf("prefix-%d/deeper", n.Add(1)), more...))
	}
}

func versity(t *testing.T, buckets ...sinktest.S3Bucket) *sinktest.S3Server {
	t.Helper()
	if len(buckets) == 0 {
		buckets = []sinktest.S3Bucket{{Name: "plain"}}
	}
	return sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: buckets})
}

// store writes an object and says what came of it.
func store(s sinks.Sink, name string, data []byte) (sinks.Object, error) {
	return sinks.Put(context.Background(), s, name, data, sinks.CreateOptions{})
}

// holds fails the test unless the object has exactly these bytes.
func holds(t *testing.T, s sinks.Sink, name string, want []byte) {
	t.Helper()
	r, err := s.Open(context.Background(), name, 0, -1)
	require.NoError(t, err)
	defer r.Close()
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s holds %d bytes that differ from the %d stored", name, len(got), len(want))
	}
}

// trying lets each request be tried for a time, with pauses up to a length.
func trying(d, longest time.Duration) func(*s3.Config) {
	return func(c *s3.Config) { c.Retry = sinks.Retry{For: d, Longest: longest} }
}

// briefly is for faults that last: some attempts at each request, and not many.
var briefly = trying(time.Second, 200*time.Millisecond)

// nothing fails the test if the name is taken, or an upload below the prefix dangles.
func nothing(t *testing.T, server *sinktest.S3Server, prefix string, s sinks.Sink, name string) {
	t.Helper()
	if o, err := s.Stat(context.Background(), name); err == nil {
		t.Errorf("an object is there: %+v", o)
	}
	for _, left := range server.Uploads(t, "plain") {
		if strings.HasPrefix(left, prefix+"/") {
			t.Errorf("an upload dangles: %s", left)
		}
	}
}
