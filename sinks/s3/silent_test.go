package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
)

// pipes are connections that need no network, so that time can be synctest's.
type pipes chan net.Conn

func (p pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inPipes opens a bucket at a server that answers as it likes, within synctest.
func inPipes(t *testing.T, answer http.HandlerFunc, change ...func(*s3.Config)) *s3.Sink {
	t.Helper()
	p := make(pipes)
	var going sync.WaitGroup
	server := &http.Server{BaseContext: func(net.Listener) context.Context { return t.Context() },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			going.Add(1)
			defer going.Done()
			answer(w, r)
		})}
	go server.Serve(p)
	c := s3.Config{Bucket: "bucket", Region: "x", Endpoint: "http://127.0.0.1:1", PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Options:     sinks.Options{Retry: sinks.Retry{For: time.Minute}}}
	s3.DialWith(p)(&c)
	for _, f := range change {
		f(&c)
	}
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		close(p)
		server.Close()
		going.Wait()
		time.Sleep(time.Second) // which the server waits before it closes some connections
	})
	return s
}

// part is the answer to a range of an object of a gibibyte.
func part(w http.ResponseWriter, r *http.Request) (from, to int64) {
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, 1<<30))
	w.Header().Set("Content-Length", strconv.FormatInt(to-from+1, 10))
	w.Header().Set("ETag", `"x"`)
	w.WriteHeader(http.StatusPartialContent)
	return from, to
}

// ready answers what comes before an object is stored, and leaves the rest to next.
func ready(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case strings.Contains(r.URL.Path, ".probe"):
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusPreconditionFailed)
		case query.Has("object-lock"):
			w.WriteHeader(http.StatusNotFound)
		case query.Has("uploads"):
			io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>`)
		default:
			next(w, r)
		}
	}
}

// drip sends a byte now and then, until nobody listens any more.
func drip(w io.Writer) {
	for {
		if _, err := io.WriteString(w, " "); err != nil {
			return
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		time.Sleep(10 * time.Second)
	}
}

// late is whether three quarters of a minute are over on synctest's clock.
func late() bool {
	return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > 45*time.Second
}

// A server that is silent, in whatever way, holds nothing longer than Retry allows
// and one attempt's silence more, and what is cleaned up then has its own short time.
func TestSilentServer(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	stat := func(ctx context.Context, s *s3.Sink) error {
		_, err := s.Stat(ctx, "a")
		return err
	}
	list := func(ctx context.Context, s *s3.Sink) (err error) {
		for _, err = range s.List(ctx, "", "") {
		}
		return err
	}
	read := func(ctx context.Context, s *s3.Sink) error {
		r, err := s.Open(ctx, "a", 0, 100<<20)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	}
	put := func(size int) func(context.Context, *s3.Sink) error {
		return func(ctx context.Context, s *s3.Sink) error {
			_, err := sinks.Put(ctx, s, "a", make([]byte, size), sinks.CreateOptions{})
			return err
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		do     func(context.Context, *s3.Sink) error
		after  time.Duration // for cleaning up
		up     int64         // a limit, for which little is written at once
	}{
		"stat":     {silent, stat, 0, 0},
		"list":     {silent, list, 0, 0},
		"read":     {silent, read, 0, 0},
		"probe":    {silent, put(10), 0, 0},
		"delete":   {silent, func(ctx context.Context, s *s3.Sink) error { return s.Delete(ctx, "a") }, 0, 0},
		"put":      {ready(silent), put(10), 20 * time.Second, 0},
		"part":     {ready(silent), put(17 << 20), 30 * time.Second, 0},
		"not read": {ready(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), put(17 << 20), 30 * time.Second, 0},
		"hardly read": {ready(func(_ http.ResponseWriter, r *http.Request) {
			for err := error(nil); err == nil; _, err = io.CopyN(io.Discard, r.Body, 1<<10) {
				time.Sleep(5 * time.Second)
			}
		}), put(1 << 20), 20 * time.Second, 100 << 10},
		"half a body": {func(w http.ResponseWriter, r *http.Request) {
			part(w, r)
			w.Write(make([]byte, 100))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, read, 0, 0},
		"dripping body": {func(w http.ResponseWriter, r *http.Request) {
			part(w, r)
			drip(w)
		}, read, 0, 0},
		"broken bodies, then none": {func(w http.ResponseWriter, r *http.Request) {
			if late() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			part(w, r)
			w.Write(make([]byte, 100))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, read, 0, 0},
		"throttled, then missing, then silent": {func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Query().Has("list-type"):
				silent(w, r)
			case late():
				w.WriteHeader(http.StatusNotFound)
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}, read, 0, 0},
		"endless header": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nA: ")
			for err == nil {
				_, err = conn.Write(bytes.Repeat([]byte("a"), 100<<10))
				time.Sleep(20 * time.Second)
			}
		}, stat, 0, 0},
		"dripping page": {func(w http.ResponseWriter, _ *http.Request) { drip(w) }, list, 0, 0},
		"dripping header": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nA: ")
				drip(conn)
			}
		}, stat, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, retry := range []time.Duration{time.Second, time.Minute, time.Hour} {
				synctest.Test(t, func(t *testing.T) {
					s := inPipes(t, test.answer, func(c *s3.Config) { c.Retry.For, c.Limits.Up = retry, test.up })
					silence := map[time.Duration]time.Duration{time.Second: 10 * time.Second, time.Minute: 30 * time.Second, time.Hour: 2 * time.Minute}[retry]
					began := time.Now()
					err := test.do(t.Context(), s)
					if took := time.Since(began); err == nil || took > retry+silence+test.after {
						t.Errorf("retried for %s, it took %s: %v", retry, took, err)
					}
				})
			}
		})
	}
}

// A connection that nothing comes from any more is one attempt lost, and not all.
func TestSilentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s := inPipes(t, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				<-r.Context().Done()
			}
		})
		if _, err := s.Stat(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

// Who cannot be connected to is told as such.
func TestSilentDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inPipes(t, nil, s3.DialWith(make(pipes))) // where nobody accepts
		began := time.Now()
		_, err := s.Stat(t.Context(), "a")
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "does not answer in time") || took > 90*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// What is slow and gets on is not broken off: a slow line, a slow reader, our own
// limit, and a connection that is used now and then.
func TestSlowIsNotSilent(t *testing.T) {
	slowly := func(w http.ResponseWriter, r *http.Request) {
		from, to := part(w, r)
		for piece := make([]byte, 4<<10); from <= to; from += int64(len(piece)) {
			time.Sleep(time.Second)
			w.Write(piece[:min(int64(len(piece)), to-from+1)])
		}
	}
	const size = 1 << 20
	read := func(t *testing.T, s *s3.Sink, pause time.Duration) {
		t.Helper()
		r, err := s.Open(t.Context(), "a", 0, size)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var got bytes.Buffer
		if _, err := io.CopyN(&got, r, 1000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		if _, err := io.Copy(&got, r); err != nil || got.Len() != size {
			t.Errorf("%d bytes: %v", got.Len(), err)
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		limits sinks.Limits
		do     func(*testing.T, *s3.Sink)
		asked  int32
	}{
		"line":   {slowly, sinks.Limits{}, func(t *testing.T, s *s3.Sink) { read(t, s, 0) }, 1},
		"reader": {slowly, sinks.Limits{}, func(t *testing.T, s *s3.Sink) { read(t, s, time.Hour) }, 1},
		"limit":  {func(w http.ResponseWriter, r *http.Request) { part(w, r); w.Write(make([]byte, size)) }, sinks.Limits{Down: 1000}, func(t *testing.T, s *s3.Sink) { read(t, s, 0) }, 1},
		"upload": {func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusPreconditionFailed)
		}, sinks.Limits{Up: 100}, func(t *testing.T, s *s3.Sink) {
			if _, err := s.Abilities(t.Context()); err != nil {
				t.Error(err)
			}
		}, 2},
		"busy server": {ready(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.Header().Set("Content-Length", strconv.Itoa(10<<10))
				return
			}
			time.Sleep(20 * time.Second)
			io.Copy(io.Discard, r.Body)
			time.Sleep(20 * time.Second)
		}), sinks.Limits{}, func(t *testing.T, s *s3.Sink) {
			if _, err := store(s, "a", make([]byte, 10<<10)); err != nil {
				t.Error(err)
			}
		}, 4},
		// Some servers put the parts together, byte by byte, before they answer.
		"completion": {ready(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"x"`)
			io.Copy(io.Discard, r.Body)
			switch r.Method {
			case http.MethodHead:
				w.Header().Set("Content-Length", strconv.Itoa(17<<20))
			case http.MethodPost:
				time.Sleep(110 * time.Second)
				io.WriteString(w, `<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>`)
			}
		}), sinks.Limits{}, func(t *testing.T, s *s3.Sink) {
			if _, err := store(s, "a", make([]byte, 17<<20)); err != nil {
				t.Error(err)
			}
		}, 7},
		"now and then": {func(http.ResponseWriter, *http.Request) { time.Sleep(9 * time.Second) }, sinks.Limits{}, func(t *testing.T, s *s3.Sink) {
			for range 20 {
				if _, err := s.Stat(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				s := inPipes(t, func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					test.answer(w, r)
				}, func(c *s3.Config) { c.Limits = test.limits })
				test.do(t, s)
				if n := asked.Load(); n != test.asked {
					t.Errorf("%d requests, not %d", n, test.asked)
				}
			})
		})
	}
}
