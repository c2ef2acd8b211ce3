package deploytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
)

// asked is a request to an S3 server as Amazon's policies see it.
type asked struct {
	user             string
	action, resource string
	conditions       map[string]string // the keys that the request has
	status           int               // of the answer
}

func (a asked) String() string {
	return fmt.Sprintf("%s: %s %s %v: %d", a.user, a.action, a.resource, a.conditions, a.status)
}

// store reports whether the request makes an object: a put, or the end of an upload in
// parts. The others of an upload take the same right, and cannot be conditional.
func (a asked) store() bool { return a.conditions["s3:ObjectCreationOperation"] == "true" }

const noneMatch = "s3:if-none-match"

// asAsked reads what a client asks, in the path style.
func asAsked(r *http.Request) asked {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	user, _, _ := strings.Cut(credential, "/")
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	a := asked{user: user, resource: "arn:aws:s3:::" + bucket, conditions: map[string]string{}}
	if key != "" {
		a.resource += "/" + key
	}
	put := func(makes string) {
		a.action = "s3:PutObject"
		a.conditions["s3:ObjectCreationOperation"] = makes
		if h := r.Header.Get("If-None-Match"); h != "" {
			a.conditions[noneMatch] = h
		}
	}
	switch {
	case key == "" && query.Has("object-lock"):
		a.action = "s3:GetBucketObjectLockConfiguration"
	case key == "" && query.Get("list-type") == "2":
		a.action = "s3:ListBucket"
	case r.Method == http.MethodGet && query.Has("uploadId"):
		a.action = "s3:ListMultipartUploadParts"
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		a.action = "s3:GetObject"
	case r.Method == http.MethodPut && query.Has("partNumber"), r.Method == http.MethodPost && query.Has("uploads"):
		put("false")
	case r.Method == http.MethodPut, r.Method == http.MethodPost && query.Has("uploadId"):
		put("true")
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		a.action = "s3:AbortMultipartUpload"
	case r.Method == http.MethodDelete && query.Has("versionId"):
		a.action = "s3:DeleteObjectVersion"
	case r.Method == http.MethodDelete:
		a.action = "s3:DeleteObject"
	default:
		a.action = r.Method + " " + r.URL.RequestURI() // no policy allows it
	}
	return a
}

// allowed is what Amazon decides by statements, which it documents so: one that denies
// wins, else one that allows is needed; all conditions of a statement have to hold.
func allowed(t testing.TB, statements []statement, a asked) bool {
	t.Helper()
	allows := false
	for _, s := range statements {
		data, err := json.Marshal(s)
		require.NoError(t, err)
		var p struct {
			Effect           string
			Action, Resource any
			Condition        map[string]map[string]string
		}
		require.NoError(t, json.Unmarshal(data, &p))
		if !slices.Contains(texts(t, p.Action), a.action) || !slices.ContainsFunc(texts(t, p.Resource), func(pattern string) bool { return fits(pattern, a.resource) }) {
			continue
		}
		holds := true
		for operator, keys := range p.Condition {
			for key, want := range keys {
				value, has := a.conditions[key]
				switch operator {
				case "Null":
					holds = holds && (want == "true") == !has
				case "Bool":
					holds = holds && has && value == want
				default:
					t.Fatalf("%s is no operator that this test knows", operator)
				}
			}
		}
		switch {
		case !holds:
		case p.Effect == "Deny":
			return false
		default:
			allows = true
		}
	}
	return allows
}

// texts are one text or several.
func texts(t testing.TB, v any) []string {
	t.Helper()
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, one.(string))
		}
		return all
	}
	t.Fatalf("%v is no text", v)
	return nil
}

// fits reports whether a resource is one of a pattern's, whose stars are any characters.
func fits(pattern, resource string) bool {
	before, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == resource
	}
	resource, ok := strings.CutPrefix(resource, before)
	for i := 0; ok && i <= len(resource); i++ {
		if fits(rest, resource[i:]) {
			return true
		}
	}
	return false
}

// recorder keeps what is asked of a server.
type recorder struct {
	proxy *sinktest.FaultProxy
	mu    sync.Mutex
	all   []asked
}

// record starts a proxy before a server that hands all on.
func record(t testing.TB, server *sinktest.S3Server) *recorder {
	t.Helper()
	r := &recorder{proxy: sinktest.NewFaultProxy(t, server.Endpoint)}
	r.proxy.Add(sinktest.ProxyFault{Name: "record", Times: -1, Do: func(w http.ResponseWriter, request *http.Request, server *httputil.ReverseProxy) {
		a, answer := asAsked(request), &answered{w, http.StatusOK}
		server.ServeHTTP(answer, request)
		a.status = answer.status
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, a)
	}})
	return r
}

type answered struct {
	http.ResponseWriter
	status int
}

// WriteHeader is called by the proxy for each answer.
func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// check holds what was asked against the users' policies, with the conditions that the
// server does not know: each request was answered as they say, so the statement that
// denies replacing denies nothing that requorum asks; and it denies the same put without a
// condition. Each user made objects below these prefixes of names, at least.
func (r *recorder) check(t testing.TB, bucket, prefix string, policies map[string][]string, made map[string][]string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	statements := map[string][]statement{}
	for user, names := range policies {
		for _, name := range names {
			statements[user] = append(statements[user], policy(t, name, bucket, prefix)...)
		}
	}
	stored := map[string][]string{}
	parts := 0
	for _, a := range r.all {
		if allowed(t, statements[a.user], a) == (a.status == http.StatusForbidden) {
			t.Errorf("the policies %v say otherwise: %s", policies[a.user], a)
		}
		if a.action != "s3:PutObject" || a.status == http.StatusForbidden {
			continue
		}
		if !a.store() {
			parts++
			continue
		}
		stored[a.user] = append(stored[a.user], strings.TrimPrefix(a.resource, "arn:aws:s3:::"+bucket+"/"+prefix+"/"))
		if a.conditions[noneMatch] != "*" {
			t.Errorf("it could replace an object: %s", a)
		}
		delete(a.conditions, noneMatch)
		if allowed(t, statements[a.user], a) {
			t.Errorf("the policies %v would allow to replace an object: %s", policies[a.user], a)
		}
	}
	for user, names := range made {
		for _, name := range names {
			if !slices.ContainsFunc(stored[user], func(s string) bool { return fits(name, s) }) {
				t.Errorf("%s stored nothing called %s: the test shows less than it says", user, name)
			}
		}
	}
	t.Logf("%d requests, %d of parts; objects stored: %d users", len(r.all), parts, len(stored))
}

// withoutConditions leaves out what only Amazon knows.
func withoutConditions(statements []statement) []statement {
	return slices.DeleteFunc(slices.Clone(statements), func(s statement) bool { return s["Condition"] != nil })
}
