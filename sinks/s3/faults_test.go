package s3_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// big is two parts, the last one odd and short, and three chunks.
const big = 17<<20 + 7

// TestPassingFaultsAreOvercome: what throttling, broken connections and flipped
// bits do once or twice is not the caller's concern.
func TestPassingFaultsAreOvercome(t *testing.T) {
	t.Parallel()
	server := versity(t)
	data := sinktest.Random(1, big)
	small := data[:1000]
	for name, fault := range map[string]sinktest.ProxyFault{
		"SlowDownOnPart":     {Match: sinktest.IsPart, Times: 2, Do: sinktest.Refuse(503, "SlowDown")},
		"SlowDownOnStart":    {Match: sinktest.IsStart, Times: 2, Do: sinktest.Refuse(503, "SlowDown")},
		"SlowDownOnComplete": {Match: sinktest.IsComplete, Times: 2, Do: sinktest.Refuse(503, "SlowDown")},
		"ErrorOnPart":        {Match: sinktest.IsPart, Do: sinktest.Refuse(500, "InternalError")},
		"PartCutMidway":      {Match: sinktest.IsPart, Do: sinktest.CutRequest(1 << 19)},
		"PartFlipped":        {Match: sinktest.IsPart, Do: sinktest.FlipRequest(1 << 19)},
		"PartAnswerLost":     {Match: sinktest.IsPart, Do: sinktest.Done(sinktest.Cut)},
		"CompleteCut":        {Match: sinktest.IsComplete, Do: sinktest.CutRequest(10)},
		"GetCut":             {Match: sinktest.IsGet("big"), Times: 3, Do: sinktest.CutResponse(1 << 20)},
		"GetCutAtOnce":       {Match: sinktest.IsGet("big"), Skip: 1, Do: sinktest.CutResponse(0)},
		"GetThrottled":       {Match: sinktest.IsGet("big"), Times: 2, Do: sinktest.Refuse(503, "SlowDown")},
		"SmallPutCut":        {Match: sinktest.IsPut("small"), Do: sinktest.CutRequest(100)},
		"SmallPutFlipped":    {Match: sinktest.IsPut("small"), Do: sinktest.FlipRequest(100)},
		"SmallPutThrottled":  {Match: sinktest.IsPut("small"), Do: sinktest.Refuse(503, "SlowDown")},
		"SmallPutConflict":   {Match: sinktest.IsPut("small"), Do: sinktest.Refuse(409, "ConditionalRequestConflict")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault.Name = name
			s := behind(t, server, fault, name)
			if !strings.HasPrefix(name, "Small") {
				_, err := store(s, "big", data)
				require.NoError(t, err)
				holds(t, s, "big", data)
			}
			_, err := store(s, "small", small)
			require.NoError(t, err)
			holds(t, s, "small", small)
		})
	}
}

// behind is a sink behind a proxy with a fault, which has to fire, on a prefix of its own.
func behind(t *testing.T, server *sinktest.S3Server, fault sinktest.ProxyFault, prefix string, change ...func(*s3.Config)) *s3.Sink {
	t.Helper()
	proxy := sinktest.NewFaultProxy(t, server.Endpoint, fault)
	t.Cleanup(func() { proxy.AllFired(t) })
	return proxied(t, server, proxy, prefix, change...)
}

// proxied is a sink behind a proxy on a prefix of its own.
func proxied(t *testing.T, server *sinktest.S3Server, proxy *sinktest.FaultProxy, prefix string, change ...func(*s3.Config)) *s3.Sink {
	t.Helper()
	return open(t, server, server.URLThrough(proxy.Endpoint, "plain", prefix), change...)
}

// TestPromise1LastingFaultsLeaveNothing: whatever goes on failing ends in an
// error, with no object and no upload left.
func TestPromise1LastingFaultsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := versity(t)
	data := sinktest.Random(2, big)
	for name, fault := range map[string]sinktest.ProxyFault{
		"Throttled":       {Match: sinktest.IsPart, Times: -1, Do: sinktest.Refuse(503, "SlowDown")},
		"PartsCut":        {Match: sinktest.IsPart, Skip: 1, Times: -1, Do: sinktest.CutRequest(1 << 19)},
		"PartsFlipped":    {Match: sinktest.IsPart, Times: -1, Do: sinktest.FlipRequest(9)},
		"PartsLost":       {Match: sinktest.IsPart, Times: -1, Do: sinktest.Done(sinktest.Cut)},
		"CompleteRefused": {Match: sinktest.IsComplete, Times: -1, Do: sinktest.Refuse(500, "InternalError")},
		"CompleteCut":     {Match: sinktest.IsComplete, Times: -1, Do: sinktest.CutRequest(10)},
		"PutRefused":      {Match: sinktest.IsPut("object"), Times: -1, Do: sinktest.Refuse(500, "InternalError")},
		"PutCut":          {Match: sinktest.IsPut("object"), Times: -1, Do: sinktest.CutRequest(10)},
		"PutHangs":        {Match: sinktest.IsPut("object"), Times: -1, Do: sinktest.Hang},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault.Name = name
			s := behind(t, server, fault, name, briefly, func(c *s3.Config) {
				if name == "PutHangs" { // the others are answered: a busy server's word is waited for
					c.Stall = time.Second
				}
			})
			content := data
			if strings.HasPrefix(name, "Put") {
				content = data[:1000]
			}
			_, err := store(s, "object", content)
			require.Error(t, err, "it succeeded")
			nothing(t, server, name, s, "object")
		})
	}
}

// TestPromise1LostAnswerOfASuccess: the server did the work and its answer was
// lost, once or always, in every way that answers get lost. Commit finds out
// that the object is there.
func TestPromise1LostAnswerOfASuccess(t *testing.T) {
	t.Parallel()
	server := versity(t)
	data := sinktest.Random(3, big)
	for kind, size := range map[string]int{"Put": 1000, "Complete": big} {
		for name, do := range map[string]sinktest.ProxyAction{
			"Lost": sinktest.Done(sinktest.Cut), "Hangs": sinktest.Done(sinktest.Hang), "500": sinktest.Done(sinktest.Refuse(500, "InternalError")), "503": sinktest.Done(sinktest.Refuse(503, "SlowDown")),
		} {
			for often, times := range map[string]int{"Once": 1, "Always": -1} {
				t.Run(kind+name+often, func(t *testing.T) {
					t.Parallel()
					fault := sinktest.ProxyFault{Name: name, Match: sinktest.IsPut("object"), Times: times, Do: do}
					if kind == "Complete" {
						fault.Match = sinktest.IsComplete
					}
					s := behind(t, server, fault, kind+name+often, briefly, func(c *s3.Config) {
						if name == "Hangs" { // the others are answered: a busy server's word is waited for
							c.Stall = 10 * time.Second
						}
					})
					o, err := store(s, "object", data[:size])
					require.NoError(t, err)
					if o.Size != int64(size) {
						t.Errorf("size %d, want %d", o.Size, size)
					}
					holds(t, s, "object", data[:size])
					for _, left := range server.Uploads(t, "plain") {
						if strings.HasPrefix(left, kind+name+often+"/") {
							t.Errorf("an upload dangles: %s", left)
						}
					}
				})
			}
		}
	}
}

// TestPromise1LostAnswerOfALoser: the other way round. Another writer's object
// is there when the answer is lost; it must not be taken for ours.
func TestPromise1LostAnswerOfALoser(t *testing.T) {
	t.Parallel()
	server := versity(t)
	data := sinktest.Random(4, big)
	for kind, size := range map[string]int{"Put": 1000, "Complete": big} {
		t.Run(kind, func(t *testing.T) {
			direct := open(t, server, server.URL("plain", kind))
			theirs := sinktest.Random(5, int64(size)) // of the same size
			fault := sinktest.ProxyFault{Name: "answer lost", Match: sinktest.IsPut("object"), Times: -1, Do: sinktest.Done(sinktest.Cut)}
			if kind == "Complete" {
				fault.Match = sinktest.IsComplete
			}
			s := behind(t, server, fault, kind, briefly)
			w, err := s.Create(context.Background(), "object", sinks.CreateOptions{})
			require.NoError(t, err)
			_, err = w.Write(data[:size])
			require.NoError(t, err)
			_, err = store(direct, "object", theirs)
			require.NoError(t, err)
			_, err = w.Commit(context.Background())
			require.ErrorIs(t, err, sinks.ErrExists, "commit")
			holds(t, direct, "object", theirs)
			if left := server.Uploads(t, "plain"); len(left) > 0 {
				t.Errorf("uploads dangle: %q", left)
			}
		})
	}
}

// TestPromise1ServerKilledMidway: the server dies during an upload and comes
// back; nothing is there, and the upload can be aborted.
func TestPromise1ServerKilledMidway(t *testing.T) {
	t.Parallel()
	server := versity(t)
	s := behind(t, server, sinktest.ProxyFault{
		Name: "kill", Match: sinktest.IsPart, Skip: 1, Do: sinktest.Before(sinktest.Cut, server.Kill),
	}, "p", briefly)
	w, err := s.Create(context.Background(), "object", sinks.CreateOptions{})
	require.NoError(t, err)
	_, writeErr := w.Write(sinktest.Random(6, big))
	_, commitErr := w.Commit(context.Background())
	if commitErr == nil {
		t.Fatal("it succeeded")
	}
	t.Log(writeErr, commitErr)
	server.Restart(t)
	_, err = s.Stat(context.Background(), "object")
	require.ErrorIs(t, err, sinks.ErrNotFound, "stat")
	_, err = store(s, "object", []byte("again"))
	require.NoError(t, err, "a second try")
}

// TestServersThatRefuseWhatTheyDoNotKnow: proxies and servers answer 400 to sums in trailers
// and to query parameters that S3 does not define, whatever the environment asks the SDK for.
func TestServersThatRefuseWhatTheyDoNotKnow(t *testing.T) {
	server := versity(t)
	known := []string{
		"list-type", "prefix", "start-after", "continuation-token", "delimiter", "encoding-type", "max-keys",
		"uploads", "uploadId", "partNumber", "max-parts", "part-number-marker", "object-lock", "versionId",
	}
	refused := func(r *http.Request) bool {
		for name := range r.URL.Query() {
			if !slices.Contains(known, name) {
				return true
			}
		}
		return r.Header.Get("X-Amz-Trailer") != "" || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") ||
			strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") || r.Header.Get("X-Amz-Checksum-Mode") != ""
	}
	ctx := t.Context()
	for _, sums := range []string{"when_supported", "when_required"} {
		t.Setenv("AWS_REQUEST_CHECKSUM_CALCULATION", sums)
		t.Setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", sums)
		proxy := sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{Name: "unknown", Match: refused, Times: -1, Do: sinktest.Refuse(400, "InvalidArgument")})
		s := proxied(t, server, proxy, sums, briefly)
		a, err := s.Abilities(ctx)
		require.NoError(t, err)
		require.True(t, a.ExclusiveCreate)
		for name, size := range map[string]int64{"small": 1000, "large": int64(storetest.Amount(big, 200<<20, 200<<20))} {
			data := sinktest.Random(1, size)
			_, err := store(s, name, data)
			require.NoError(t, err)
			holds(t, s, name, data)
			_, err = store(s, name, data)
			require.ErrorIs(t, err, sinks.ErrExists)
		}
		for _, err := range s.List(ctx, "", "") {
			require.NoError(t, err)
		}
		w, err := s.Create(ctx, "aborted", sinks.CreateOptions{})
		require.NoError(t, err)
		_, err = w.Write(sinktest.Random(2, big))
		require.NoError(t, err)
		require.NoError(t, w.Abort())
		require.NoError(t, s.Delete(ctx, "small"))
		// The proxy does refuse.
		answer, err := http.Get(proxy.Endpoint + "/plain?x-id=ListObjects")
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		proxy.AllFired(t)
	}
}

// TestServersThatRefuseSums: the error of the first try names the header.
func TestServersThatRefuseSums(t *testing.T) {
	t.Parallel()
	server := versity(t)
	proxy := sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{
		Name: "sum", Match: func(r *http.Request) bool { return r.Header.Get("X-Amz-Checksum-Crc32c") != "" }, Times: -1, Do: sinktest.Refuse(400, "InvalidRequest"),
	})
	s := proxied(t, server, proxy, "p")
	for _, do := range []func() error{
		func() error { _, err := s.Abilities(t.Context()); return err },
		func() error { _, err := store(s, "small", []byte("x")); return err },
	} {
		before := len(proxy.Requests())
		require.ErrorContains(t, do(), "cannot use one that refuses the header x-amz-checksum-crc32c")
		if n := len(proxy.Requests()) - before; n != 1 {
			t.Errorf("%d requests, want 1: %q", n, proxy.Requests())
		}
	}
}

// TestReadOfAReplacedObject: half of one object and half of another is never
// handed out.
func TestReadOfAReplacedObject(t *testing.T) {
	t.Parallel()
	server := versity(t)
	direct := open(t, server, server.URL("plain", "p"))
	_, err := store(direct, "object", sinktest.Random(7, big))
	require.NoError(t, err)
	s := behind(t, server, sinktest.ProxyFault{
		Name: "replaced", Match: sinktest.IsGet("object"), Skip: 2,
		Do: sinktest.Before(sinktest.Pass, func() {
			if _, err := server.Client().PutObject(context.Background(), &awss3.PutObjectInput{
				Bucket: aws.String("plain"), Key: aws.String("p/object"), Body: bytes.NewReader(sinktest.Random(8, big)),
			}); err != nil {
				t.Error(err)
			}
		}),
	}, "p")
	_, err = sinks.Get(context.Background(), s, "object", big)
	require.ErrorContains(t, err, "replaced")
}

// TestReadThatAlwaysBreaks is an unexpected end, never a clean one.
func TestReadThatAlwaysBreaks(t *testing.T) {
	t.Parallel()
	server := versity(t)
	direct := open(t, server, server.URL("plain", "p"))
	for name, size := range map[string]int64{"short": 1 << 20, "long": 20 << 20} {
		_, err := store(direct, name, sinktest.Random(9, size))
		require.NoError(t, err)
		s := behind(t, server, sinktest.ProxyFault{Name: "cut", Match: sinktest.IsGet(name), Times: -1, Do: sinktest.CutResponse(100)}, "p", briefly)
		_, err = sinks.Get(context.Background(), s, name, size)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
	}
}
