package walreplay

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// object is a Kubernetes object as the API server stores it.
func object(deleting bool) string {
	field := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	meta := field(1, []byte("name"))
	if deleting {
		meta = append(meta, field(9, []byte{8, 1})...)
	}
	kind := field(1, []byte("\n\x02v1"))
	return "k8s\x00" + string(append(kind, field(2, field(1, meta))...))
}

func TestBeingDeleted(t *testing.T) {
	for value, want := range map[string]bool{
		object(true): true, object(false): false,
		`{"metadata":{"deletionTimestamp":"2026-01-02T15:04:05Z"}}`: true, `{"metadata":{"name":"x"}}`: false, `{"metadata":{"deletionTimestamp":null}}`: false,
		`{"metadata":`: false, "": false, "text": false, "k8s\x00": false, "k8s\x00\xff\xff": false, object(true)[:12]: false, "k8s:enc:aescbc:v1:x:y": false,
	} {
		if got := beingDeleted([]byte(value)); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestContents(t *testing.T) {
	for key, keys := range map[string]map[string]bool{
		"/registry/namespaces/lab": {
			"/registry/pods/lab/a": true, "/registry/example.com/widgets/lab/a": true, "/registry/services/specs/lab/a": true,
			"/registry/pods/lab-2/a": false, "/registry/pods/other/lab": false, "/registry/namespaces/lab": false, "/registry/example.com/lab/a": false,
			"/registry/persistentvolumes/lab": false, "/other/pods/lab/a": false, "/registry/pods/labs": false,
		},
		"/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com": {
			"/registry/example.com/widgets/lab/a": true, "/registry/example.com/widgets/a": true, "/registry/example.com/gadgets/lab/a": false, "/registry/pods/lab/a": false,
		},
	} {
		of := contents(key)
		for k, want := range keys {
			if of([]byte(k)) != want {
				t.Errorf("%s of %s: want %v", k, key, want)
			}
		}
	}
	for _, key := range []string{"/registry/pods/lab/a", "/registry/namespaces/", "/namespaces", "/registry/namespaces/lab/x"} {
		if contents(key) != nil {
			t.Errorf("%s has contents", key)
		}
	}
}

// sample is when a member was seen at an index.
type sample struct {
	index   uint64
	seconds float64
}

// archiveAt archives all entries with these samples.
func (w *world) archiveAt(samples []sample) {
	w.t.Helper()
	b := segment.Batch{Entries: w.entries}
	for _, s := range samples {
		b.Marks = append(b.Marks, raftlog.Mark{Index: s.index, Term: 2, Time: clockStart.Add(time.Duration(s.seconds * float64(time.Second))), Member: 1})
	}
	logtest.Archive(w.t, w.repo, w.id, raftlog.Sum{}, b, clockStart, codec.Options{})
}

func (w *world) before(target Target) *Point {
	w.t.Helper()
	p, err := w.history().Resolve(w.t.Context(), target, "", w.options())
	require.NoError(w.t, err, target)
	return p
}

// A burst ends where neighbours are more than a minute apart, by the samples, and
// where there are none, by more than a thousand entries.
func TestBurstEdges(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds []float64 // when the keys were deleted; nil: no samples
		others  int       // entries between the first two and the last
		keys    int64     // of the newest burst
	}{
		{"a minute apart", []float64{10, 70, 130}, 0, 3},
		{"more than a minute", []float64{10, 70, 130.001}, 0, 1},
		{"long ago", []float64{10, 5000, 5030}, 0, 2},
		{"many entries within a minute", []float64{10, 20, 50}, 1500, 3},
		{"no samples", nil, 990, 3},
		{"no samples, many entries", nil, 1001, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for i := range 3 {
				w.put(fmt.Sprintf("p/%d", i), "x")
			}
			base := uint64(len(w.entries))
			w.backup(base)
			samples := []sample{{base, -1000}}
			for i := range 3 {
				if i == 2 {
					for range c.others {
						w.put("other", "x")
					}
				}
				at := w.delete(fmt.Sprintf("p/%d", i))
				if c.seconds != nil { // a quiet cluster is seen right before it goes on
					samples = append(samples, sample{at - 1, c.seconds[i]}, sample{at, c.seconds[i]})
				}
			}
			if c.seconds == nil {
				samples = nil
			}
			w.put("other", "y")
			w.archiveAt(samples)
			p := w.before(Target{Kind: BeforePrefix, Key: "p/"})
			if p.Found.Burst.DeletedKeys != c.keys || p.Found.Burst.Last.Index != uint64(len(w.entries)-1) || p.Last != p.Found.Burst.First.Index-1 || p.Revision != w.rev[p.Last] {
				t.Errorf("%+v, %+v", p.Found.Burst, p)
			}
			if n := len(p.Found.Others); (c.keys < 3) != (n == 1) {
				t.Errorf("others: %v", p.Found.Others)
			}
		})
	}
}

// A namespace's key counts what was deleted below its name since it was marked,
// however long that took, and nothing from before or of others.
func TestBeforeNamespace(t *testing.T) {
	const ns, key = "/registry/namespaces/lab", "/registry/%s/lab/%d"
	for _, c := range []struct{ name, live, marked string }{
		{"protobuf", object(false), object(true)},
		{"JSON", `{"metadata":{}}`, `{"metadata":{"deletionTimestamp":"2026-01-02T15:04:05Z"}}`},
		{"encrypted", "k8s:enc:aescbc:v1:k:1", "k8s:enc:aescbc:v1:k:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.put(ns, c.live)
			w.put("/registry/namespaces/lab-2", c.live)
			for i := range 30 {
				w.put(fmt.Sprintf(key, "pods", i), "x")
				w.put(fmt.Sprintf(key, "example.com/widgets", i), "x")
				w.put(fmt.Sprintf("/registry/pods/lab-2/%d", i), "x")
			}
			w.backup(uint64(len(w.entries)))
			samples := []sample{{uint64(len(w.entries)), 0}}
			seen := func(at uint64, seconds float64) uint64 {
				samples = append(samples, sample{at - 1, seconds}, sample{at, seconds})
				return at
			}
			seen(w.delete(fmt.Sprintf(key, "pods", 0)), 900) // by hand, before
			seen(w.put("other", "x"), 990)
			marked := seen(w.put(ns, c.marked), 1000)
			for i := range 30 {
				if i > 0 {
					w.delete(fmt.Sprintf(key, "pods", i))
				}
				w.delete(fmt.Sprintf("/registry/pods/lab-2/%d", i))
				if i == 10 {
					w.backup(uint64(len(w.entries))) // in the middle of it
				}
			}
			for i := range 30 {
				seen(w.delete(fmt.Sprintf(key, "example.com/widgets", i)), 1010)
			}
			late := 1020.0
			if c.name != "encrypted" { // a finalizer held it up for two days
				late += 48 * 3600
			}
			last := seen(w.delete(ns), late)
			w.put("other", "y")
			w.archiveAt(samples)
			p := w.before(Target{Kind: BeforeKey, Key: ns})
			if b := p.Found.Burst; p.Last != marked-1 || b.DeletedKeys != 29+30+1 || b.Last.Index != last || len(b.Names) != shownNames {
				t.Errorf("the point is %d, want %d: %s", p.Last, marked-1, p.Found)
			}
			notes := strings.Join(p.Found.Notes(), "\n")
			for _, want := range []string{"60 keys were deleted from revision", "come back: /registry/pods/lab/1, ", "and 50 more", "given up as well: 31 other changes", "--index " + fmt.Sprint(last-1)} {
				if !strings.Contains(notes, want) {
					t.Errorf("no %q in\n%s", want, notes)
				}
			}
		})
	}
}

// What was created and deleted within the burst does not come back, and is not
// counted; what was only marked does.
func TestBurstCounts(t *testing.T) {
	for _, deletions := range []bool{true, false} {
		w := newWorld(t)
		w.put("p/old", "x")
		w.put("p/marked", object(false))
		w.put("p/kept", "x")
		w.backup(uint64(len(w.entries)))
		first := w.put("p/marked", object(true))
		w.put("p/new", "x")
		w.delete("p/new")
		w.put("p/kept", "y")
		w.delete("p/old")
		w.put("p/old", "again")
		w.delete("p/old")
		if !deletions { // the newest change is none: then all of them count
			w.put("p/kept", "z")
		}
		w.archiveAt(nil)
		p := w.before(Target{Kind: BeforePrefix, Key: "p/"})
		b := *p.Found.Burst
		b.First, b.Last, b.rows = Moment{}, Moment{}, 0
		want := Burst{Deletions: true, Changes: 4, DeletedKeys: 1, TouchedKeys: 2, Names: []string{"p/old"}}
		what, given := "1 key was deleted, and 1 marked for deletion", int64(3)
		if !deletions {
			want = Burst{Changes: 8, DeletedKeys: 1, TouchedKeys: 3, CreatedKeys: 2, Names: []string{"p/marked", "p/new", "p/kept", "p/old"}}
			what, given = "5 keys were changed (1 deleted, 2 new)", 0
		}
		if p.Last != first-1 || fmt.Sprint(b) != fmt.Sprint(want) || p.Found.GivenUp != given || b.What() != what {
			t.Errorf("got %+v, %s, %d given up, point %d; want %+v, %s, %d, %d", b, b.What(), p.Found.GivenUp, p.Last, want, what, given, first-1)
		}
	}
}

// Keys that change all the time have no burst: the point is to be named, and where
// keys were deleted is reported.
func TestBeforeEndless(t *testing.T) {
	w := newWorld(t)
	w.put("p/a", "x")
	w.put("p/b", "x")
	w.backup(uint64(len(w.entries)))
	var samples []sample
	var deleted uint64
	for i := range 80 {
		samples = append(samples, sample{w.put("p/a", "x"), float64(i * 50)})
		if i == 60 {
			deleted = w.delete("p/b")
			samples = append(samples, sample{deleted, float64(i*50) + 1})
		}
	}
	w.archiveAt(samples)
	_, err := w.history().Resolve(t.Context(), Target{Kind: BeforePrefix, Key: "p/"}, "", w.options())
	var refused *NotCoveredError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), fmt.Sprintf("1 key was deleted at revision %d", w.rev[deleted])) || !strings.Contains(err.Error(), fmt.Sprintf("(--index %d)", deleted-1)) ||
		!strings.Contains(err.Error(), fmt.Sprintf("(--index %d)", len(w.entries)-1)) {
		t.Errorf("%v", err)
	}
}

// A burst that may have begun before the oldest full snapshot says so.
func TestBurstMayHaveBegunBefore(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.put(fmt.Sprintf("p/%d", i), "x")
	}
	w.delete("p/0")
	b := w.backup(uint64(len(w.entries)))
	for i := range 3 {
		w.delete(fmt.Sprintf("p/%d", i+1))
	}
	w.archiveAt(nil)
	p := w.before(Target{Kind: BeforePrefix, Key: "p/"})
	if p.Last != b.Index() || !p.AsIs || p.Found.Burst.DeletedKeys != 3 || !strings.Contains(p.Found.Unsure, b.Name) {
		t.Errorf("%+v, %+v", p, p.Found)
	}
}

// A key that never existed is refused, and a changed key that begins with it is not taken
// for it.
func TestBefore_UnknownKey_Refused(t *testing.T) {
	w := newWorld(t)
	w.put("/registry/deployments/default/web", "x")
	w.backup(uint64(len(w.entries)))
	w.put("/registry/deployments/default/web", "y")
	w.archiveAt(nil)
	for _, key := range []string{"/registry/deployments/default", "x"} {
		_, err := w.history().Resolve(t.Context(), Target{Kind: BeforeKey, Key: key}, "", w.options())
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no key %q in this history", key)) || !strings.Contains(err.Error(), "use --before-prefix") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
