package s3_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

// isLastPart matches the upload of the second part, which is small.
func isLastPart(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" }

// TestRetryForOutlastsManyFailures: with a time, no number of attempts ends a
// request of any kind, whatever the environment says.
func TestRetryForOutlastsManyFailures(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "3")
	server := versity(t)
	data := sinktest.Random(1, big)
	const often = 8
	for name, match := range map[string]func(*http.Request) bool{
		"Part": isLastPart, "Start": sinktest.IsStart, "Complete": sinktest.IsComplete, "Put": sinktest.IsPut("small"),
		"Probe": sinktest.IsPut(".probe/conditional"), "Head": sinktest.IsHead("small"), "Get": sinktest.IsGet("big"), "List": sinktest.IsList, "Delete": sinktest.IsDelete("small"),
	} {
		s := behind(t, server, sinktest.ProxyFault{Name: name, Match: match, Times: often, Do: sinktest.Refuse(503, "SlowDown")}, name)
		content := data
		if !slices.Contains([]string{"Part", "Start", "Complete", "Get"}, name) {
			content = data[:10]
		}
		_, err := store(s, "big", content)
		require.NoError(t, err, name)
		_, err = store(s, "small", data[:10])
		require.NoError(t, err, name)
		holds(t, s, "big", content)
		for _, err := range s.List(context.Background(), "", "") {
			require.NoError(t, err, name)
		}
		require.NoError(t, s.Delete(context.Background(), "small"), name)
	}
}

// TestRetryForEnds: once the time is over the error says how long it was tried.
func TestRetryForEnds(t *testing.T) {
	t.Parallel()
	const patience = 2 * time.Second
	server := versity(t)
	_, err := store(open(t, server, server.URL("plain", "p")), "big", sinktest.Random(1, big))
	require.NoError(t, err)
	read := func(s sinks.Sink) error {
		r, err := s.Open(context.Background(), "big", 0, -1)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	}
	put := func(size int64) func(sinks.Sink) error {
		return func(s sinks.Sink) error {
			_, err := store(s, "object", sinktest.Random(2, size))
			return err
		}
	}
	for name, test := range map[string]struct {
		fault sinktest.ProxyFault
		do    func(sinks.Sink) error
	}{
		"Put":      {sinktest.ProxyFault{Match: sinktest.IsPut("object")}, put(10)},
		"Part":     {sinktest.ProxyFault{Match: isLastPart}, put(big)},
		"Complete": {sinktest.ProxyFault{Match: sinktest.IsComplete}, put(big)},
		"Probe":    {sinktest.ProxyFault{Match: sinktest.IsPut(".probe/conditional")}, put(10)},
		"Open":     {sinktest.ProxyFault{Match: sinktest.IsGet("big")}, read},
		"Read":     {sinktest.ProxyFault{Match: sinktest.IsGet("big"), Skip: 2}, read},
		"List": {sinktest.ProxyFault{Match: sinktest.IsList}, func(s sinks.Sink) (err error) {
			for _, err = range s.List(context.Background(), "", "") {
			}
			return err
		}},
		// HEAD, and a GET for the reason: one time for both.
		"Stat": {sinktest.ProxyFault{}, func(s sinks.Sink) error {
			_, err := s.Stat(context.Background(), "big")
			return err
		}},
		"Delete": {sinktest.ProxyFault{Match: sinktest.IsDelete("big")}, func(s sinks.Sink) error { return s.Delete(context.Background(), "big") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.fault.Name, test.fault.Times, test.fault.Do = name, -1, sinktest.Refuse(503, "SlowDown")
			proxy := sinktest.NewFaultProxy(t, server.Endpoint, test.fault)
			s := proxied(t, server, proxy, "p", trying(patience, 100*time.Millisecond))
			began := time.Now()
			err := test.do(s)
			took := time.Since(began)
			proxy.AllFired(t)
			if err == nil || !strings.Contains(err.Error(), "throttles, and did so for 2s") {
				t.Error(err)
			}
			// A put is looked for afterwards, for 2 s, and another part is on its way while
			// the last one is refused; the machine may be busy.
			if took < patience-patience/4 || took > patience+28*time.Second && !slices.Contains([]string{"Put", "Part", "Complete"}, name) {
				t.Errorf("it took %s, want about %s", took, patience)
			}
			if n := len(proxy.Requests()); n < 5 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestRetryForNotTheHopeless: waiting mends no certificate.
func TestRetryForNotTheHopeless(t *testing.T) {
	t.Parallel()
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{TLS: true, Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
	plain := versity(t)
	for part, url := range map[string]string{
		"certificate": server.URL("plain", "p"),
		"plain http":  plain.URLThrough(strings.Replace(plain.Endpoint, "http:", "https:", 1), "plain", "p"),
	} {
		s := open(t, server, url, func(c *s3.Config) { c.CAFile = "" })
		began := time.Now()
		_, err := s.Stat(context.Background(), "object")
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), part) || took > 30*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	}
}
