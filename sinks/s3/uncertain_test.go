package s3_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

// then does what do does to one request, and cuts all that follow it.
func then(match func(*http.Request) bool, do sinktest.ProxyAction) []sinktest.ProxyFault {
	var gone atomic.Bool
	return []sinktest.ProxyFault{
		{Name: "first", Match: match, Do: sinktest.Before(do, func() { gone.Store(true) })},
		{Name: "unreachable", Match: func(*http.Request) bool { return gone.Load() }, Times: -1, Do: sinktest.Cut},
	}
}

// TestPromise1Uncertain: the server stored the object, and nobody can be asked
// whether it did. The caller must learn that it may be there.
func TestPromise1Uncertain(t *testing.T) {
	t.Parallel()
	server := versity(t)
	data := sinktest.Random(1, big)
	for name, test := range map[string]struct {
		size   int
		faults []sinktest.ProxyFault
	}{
		"PutLost":          {1000, then(sinktest.IsPut("object"), sinktest.Done(sinktest.Cut))},
		"Put500":           {1000, then(sinktest.IsPut("object"), sinktest.Done(sinktest.Refuse(500, "InternalError")))},
		"PutAccepted":      {1000, then(sinktest.IsPut("object"), sinktest.Pass)},
		"CompleteLost":     {big, then(sinktest.IsComplete, sinktest.Done(sinktest.Cut))},
		"CompleteAccepted": {big, then(sinktest.IsComplete, sinktest.Pass)},
		// The second attempt hears that the name is taken: by the first one.
		"PutLostThen412": {1000, []sinktest.ProxyFault{
			{Name: "first", Match: sinktest.IsPut("object"), Do: sinktest.Done(sinktest.Cut)},
			{Name: "look", Match: sinktest.IsHead("object"), Times: -1, Do: sinktest.Refuse(503, "SlowDown")},
		}},
		"PutLostThen403": {1000, []sinktest.ProxyFault{
			{Name: "first", Match: sinktest.IsPut("object"), Do: sinktest.Done(sinktest.Cut)},
			{Name: "expired", Match: sinktest.IsPut("object"), Do: sinktest.Refuse(403, "AccessDenied")},
			{Name: "look", Match: sinktest.IsHead("object"), Times: -1, Do: sinktest.Refuse(403, "AccessDenied")},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := sinktest.NewFaultProxy(t, server.Endpoint, test.faults...)
			s := proxied(t, server, proxy, name, trying(5*time.Second, 500*time.Millisecond), s3.SettleSoon)
			_, err := store(s, "object", data[:test.size])
			proxy.AllFired(t)
			if !errors.Is(err, sinks.ErrUncertain) || !strings.Contains(err.Error(), sinks.ErrUncertain.Error()) {
				t.Errorf("commit: %v, want ErrUncertain", err)
			}
			holds(t, open(t, server, server.URL("plain", name)), "object", data[:test.size])
		})
	}
}

// TestPromise1Certain: a refusal is one, though nobody can look afterwards.
func TestPromise1Certain(t *testing.T) {
	t.Parallel()
	server := versity(t)
	for code, want := range map[string]error{"AccessDenied": sinks.ErrDenied, "PreconditionFailed": sinks.ErrExists} {
		status := map[string]int{"AccessDenied": 403, "PreconditionFailed": 412}[code]
		proxy := sinktest.NewFaultProxy(t, server.Endpoint, then(sinktest.IsPut("object"), sinktest.Refuse(status, code))...)
		_, err := store(proxied(t, server, proxy, code, briefly, s3.SettleSoon), "object", nil)
		if !errors.Is(err, want) || errors.Is(err, sinks.ErrUncertain) {
			t.Errorf("%s: %v", code, err)
		}
		proxy.AllFired(t)
	}
}

// TestPromise4UncertainAfterTakingBack: an object that is not as asked for, and
// cannot be removed, stays.
func TestPromise4UncertainAfterTakingBack(t *testing.T) {
	t.Parallel()
	server := versity(t)
	proxy := sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{Name: "delete", Match: sinktest.IsDelete("object"), Times: -1, Do: sinktest.Refuse(403, "AccessDenied")})
	s := open(t, server, server.URLThrough(proxy.Endpoint, "plain", "p", "storage-class=STANDARD_IA"))
	_, err := store(s, "object", []byte("data"))
	if !errors.Is(err, sinks.ErrUncertain) || !strings.Contains(err.Error(), "stays") || !strings.Contains(err.Error(), "storage class") {
		t.Errorf("put: %v", err)
	}
	proxy.AllFired(t)
	holds(t, open(t, server, server.URL("plain", "p")), "object", []byte("data"))
}
