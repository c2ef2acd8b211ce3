package s3_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
)

// hostile opens a bucket at a server that answers as it likes.
func hostile(t *testing.T, answer http.HandlerFunc) *s3.Sink {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	s, err := s3.Open(t.Context(), s3.Config{Bucket: "bucket", Region: "x", Endpoint: server.URL, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "token")})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// took is how much memory do allocates, in MiB.
func took(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// flood sends text until nobody listens any more, or 512 MiB are sent.
func flood(w io.Writer, text string) {
	text = strings.Repeat(text, 1+(64<<10)/len(text))
	for sent := 0; sent < 512<<20; sent += len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// A page of a listing, and the text of an error, end somewhere.
func TestAnswersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		head   string
		more   string
	}{
		"a listing of one endless page": {http.StatusOK, `<?xml version="1.0"?><ListBucketResult>`, `<Contents><Key>!</Key><Size>1</Size></Contents>`},
		"an endless name":               {http.StatusOK, `<?xml version="1.0"?><ListBucketResult><Contents><Key>`, `aaaaaaaaaaaaaaaa`},
		"an endless error":              {http.StatusForbidden, `<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>`, `no no no `},
	} {
		t.Run(name, func(t *testing.T) {
			s := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(c.status)
				io.WriteString(w, c.head)
				flood(w, c.more)
			})
			var err error
			n := took(func() {
				for _, failed := range s.List(t.Context(), "", "") {
					err = failed
				}
			})
			if err == nil || n > 256 {
				t.Errorf("%v; it took %d MiB", err, n)
			}
		})
	}
}

// A server that sends more than the range that was asked for is reported, and what
// it sends beyond is not read.
func TestMoreThanTheRange(t *testing.T) {
	for name, header := range map[string]string{
		"it says so":     "bytes 0-536870911/536870912",
		"it does not":    "bytes 0-1023/536870912",
		"it is confused": "bytes 0-2047/536870912",
	} {
		t.Run(name, func(t *testing.T) {
			s := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Range", header)
				w.Header().Set("ETag", `"x"`)
				w.WriteHeader(http.StatusPartialContent)
				flood(w, "more ")
			})
			read := int64(-1)
			n := took(func() {
				r, err := s.Open(t.Context(), "a", 0, 1024)
				if err != nil {
					if !strings.Contains(err.Error(), "1024 bytes were asked for") {
						t.Error(err)
					}
					return
				}
				read, err = io.Copy(io.Discard, r)
				if err := fmt.Sprint(err, r.Close()); err != "<nil> <nil>" {
					t.Error(err)
				}
			})
			if refused := read < 0; refused == (name == "it does not") || read > 1024 || n > 64 {
				t.Errorf("%d bytes were read; it took %d MiB", read, n)
			}
		})
	}
}

// A document that a server says is huge costs one small request.
func TestLargeDocumentIsNotRead(t *testing.T) {
	var asked []string
	s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Range"))
		w.Header().Set("Content-Range", "bytes 0-65536/1099511627776")
		w.Header().Set("ETag", `"x"`)
		w.WriteHeader(http.StatusPartialContent)
		w.Write(make([]byte, 65537))
	})
	_, err := sinks.Get(t.Context(), s, "a.json", 64<<10)
	require.ErrorContains(t, err, sinks.ErrTooLarge.Error())
	if len(asked) != 1 || asked[0] != "bytes=0-65536" {
		t.Errorf("%q were asked for", asked)
	}
}

// No redirect is followed, not even to another port of the same host: nothing is sent
// there, and nothing that comes from there is believed.
func TestRedirectsAreRefused(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent on, with %q", r.Method, r.URL, r.Header)
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), "", "http://%zz"} {
			s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				if location != "" {
					w.Header().Set("Location", location+r.URL.Path)
				}
				w.WriteHeader(status)
			})
			_, stat := s.Stat(t.Context(), "a")
			_, open := s.Open(t.Context(), "a", 0, -1)
			_, put := store(s, "a", []byte("x"))
			var list error
			for _, list = range s.List(t.Context(), "", "") {
			}
			for call, err := range map[string]error{"stat": stat, "open": open, "put": put, "list": list, "delete": s.Delete(t.Context(), "a")} {
				if err == nil || !strings.Contains(err.Error(), s.String()) {
					t.Errorf("%d to %q, %s: %v", status, location, call, err)
				} else if strings.HasSuffix(location, other.URL[len("http://127.0.0.1"):]) && !strings.Contains(err.Error(), "redirects bucket bucket to "+location) {
					t.Errorf("%d to %q, %s: %v", status, location, call, err)
				}
			}
		}
	}
}

// A listing that does not get on ends with an error, and is not taken for whole.
func TestListThatDoesNotEnd(t *testing.T) {
	object := func(key string) string { return "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>" }
	for name, page := range map[string]func(n int) string{
		"empty pages":        func(int) string { return "" },
		"the same page":      func(int) string { return object("a") + object("b") },
		"foreign keys":       func(int) string { return object("a a") + object("a b") },
		"unordered, foreign": func(int) string { return object("a b") + object("a a") },
		"backwards":          func(n int) string { return object(fmt.Sprintf("k%06d", 500_000-n)) },
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked > 1000 {
					w.WriteHeader(http.StatusForbidden) // enough
					return
				}
				fmt.Fprintf(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>%s</ListBucketResult>`, asked, page(asked))
			})
			var err error
			for _, err = range s.List(t.Context(), "", "") {
			}
			if err == nil || !strings.Contains(err.Error(), "it cannot be used") || !strings.Contains(err.Error(), s.String()) {
				t.Errorf("after %d pages: %v", asked, err)
			}
		})
	}
}
