package s3_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/s3"
)

// TestSDKIsQuiet: what the SDK has to say, here of metadata without tokens,
// does not go to standard error past our own logging.
func TestSDKIsQuiet(t *testing.T) {
	var asked atomic.Int32
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no tokens here", http.StatusForbidden)
	}))
	defer metadata.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = write
	t.Cleanup(func() { os.Stderr = stderr })
	s, err := s3.Open(t.Context(), s3.Config{Bucket: "bucket", Region: "x", Endpoint: metadata.URL, PathStyle: true})
	require.NoError(t, err)
	_, err = s.Stat(t.Context(), "a")
	require.Error(t, err, "there are no credentials, and Stat succeeds")
	s.Close()
	write.Close()
	said, err := io.ReadAll(read)
	require.NoError(t, err)
	if asked.Load() == 0 {
		t.Error("the metadata were never asked for")
	}
	if text := string(said); strings.Contains(text, "SDK") || strings.Contains(text, "IMDS") {
		t.Errorf("on standard error: %s", text)
	}
}
