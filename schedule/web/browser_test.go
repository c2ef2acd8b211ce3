//go:build unix

package web

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// site serves the page as an agent does, of a status that can be exchanged.
func site(t *testing.T, st *Status) (string, *atomic.Pointer[Status]) {
	var p atomic.Pointer[Status]
	p.Store(st)
	server := httptest.NewServer(New(Options{Status: p.Load}))
	t.Cleanup(server.Close)
	return server.URL, &p
}

// pages are all that the browser is shown, with a sentence that must be there.
var pages = []struct {
	name string
	st   *Status
	says []string
}{
	{"healthy", healthy(), []string{
		"If it all burned now: you would lose 2 seconds, and restoring would take about 48 seconds.",
		"In order", "in 14 h", "closed the stream after 211 MiB", "etcd-3", "18\u202f204 segments", "s3://backups/etcd-prod", "etcd client",
	}},
	{"gap", gapped(), []string{
		"you would lose 42 minutes", "2 critical, 1 warning", "12 entries after index 51,100,000 are missing",
		"Leave the full snapshot that is running alone.", "41\u202f%", "due etcd-3 is at it", "The objective is 60 seconds.",
	}},
	{"failed-verify", failed(), []string{"1 critical, 1 warning", "page 88,213 of bucket key is reached twice", "run requorum doctor there", "expires in 6 days"}},
	{"empty", empty(), []string{"what you would lose is not known, and how long restoring would take is not known.", "Nothing is stored yet.", "not run yet", "not enabled"}},
	{"young", young(), []string{
		"you would lose 2 seconds, and how long restoring would take is not known.", "2026-11-21 10:19",
		"left alone catching up", "does not answer context deadline", "divergent",
	}},
	{"hostile", hostile(), []string{evil}},
	{"crowded", crowded(), []string{"8812 older ones"}},
}

// TestPagesAreDrawn: each of them is drawn whole, without a browser too: a field that is
// gone shows only where the template is executed.
func TestPagesAreDrawn(t *testing.T) {
	for _, p := range pages {
		url, _ := site(t, p.st)
		resp, err := http.Get(url)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "</html>") {
			t.Errorf("%s: %d, %v: %s", p.name, resp.StatusCode, err, text)
		}
	}
}

// TestPageInBrowser: in a real browser, on a desk and on a phone, with scripts
// and without, the page shows everything, is not wider than the screen, asks for
// nothing outside of its origin, and no string in it does anything.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes long; the page itself has tests without one")
	}
	t.Parallel()
	b := startBrowser(t)
	for _, p := range pages {
		t.Run(p.name, func(t *testing.T) {
			b.t = t
			url, _ := site(t, p.st)
			var texts []string
			for _, l := range []look{{width: 1280}, {width: 1280, noScript: true}, {width: 360, dark: true}, {width: 360, noScript: true}, {width: 901}} {
				if l.width == 901 && p.name != "hostile" && p.name != "crowded" {
					continue // the width is tried where it is hardest
				}
				b.open(url, l)
				if w := eval[int](b, "document.scrollingElement.scrollWidth"); w > l.width {
					t.Errorf("%+v: the page is %d pixels wide", l, w)
				}
				text := eval[string](b, "document.body.innerText.replace(/[\\t\\n ]+/g, ' ')")
				for _, s := range p.says {
					if !strings.Contains(text, s) {
						t.Errorf("%+v: the page does not say %q", l, s)
					}
				}
				if l.width == 1280 {
					texts = append(texts, text)
				}
				if got := eval[string](b, "document.title"); strings.Contains(got, "owned") && p.name != "hostile" || got == "owned" {
					t.Errorf("%+v: a string of the status ran as a script", l)
				}
				// What the server writes, and not one element more.
				if got := eval[string](b, "[document.scripts.length, document.images.length, document.querySelectorAll('style').length, document.querySelectorAll('[onerror],[onload],[onclick],[style],base,iframe,object').length].join()"); got != "1,0,1,0" {
					t.Errorf("%+v: scripts, images, styles, others: %s", l, got)
				}
				// The styles were let in by their hash.
				if got := eval[string](b, "getComputedStyle(document.body).marginTop"); got != "0px" {
					t.Errorf("%+v: the page has no styles", l)
				}
				b.quiet(url)
			}
			if texts[0] != texts[1] {
				t.Errorf("without scripts it says something else:\n%s\n%s", texts[0], texts[1])
			}
		})
	}
}

// TestPageRefreshes: the script puts newer content in place, and says so when the agent
// is gone.
func TestPageRefreshes(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes long; the page itself has tests without one")
	}
	t.Parallel()
	b := startBrowser(t)
	var now atomic.Pointer[Status]
	now.Store(healthy())
	server := httptest.NewServer(New(Options{Status: now.Load}))
	defer server.Close()
	b.open(server.URL, look{width: 1280})
	eval[any](b, "(window.mark = 1, null)")
	now.Store(gapped())
	b.until("the new status is shown", func() bool {
		return strings.Contains(eval[string](b, "document.querySelector('h1').innerText"), "42 minutes")
	})
	if got := eval[string](b, "[window.mark, document.getElementById('stale').hidden, document.title].join('|')"); got != "1|true|2 critical, 1 warning · etcd-1 · requorum" {
		t.Errorf("after the refresh: %s", got)
	}
	b.quiet(server.URL)
	server.Close()
	b.until("the page says that it is old", func() bool {
		return strings.Contains(eval[string](b, "document.getElementById('stale').innerText"), "The agent does not answer")
	})
}

// TestPageWithoutScriptReloads: then the page reloads itself.
func TestPageWithoutScriptReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes long; the page itself has tests without one")
	}
	t.Parallel()
	b := startBrowser(t)
	var loads atomic.Int32
	h := New(Options{Status: healthy})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			loads.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	b.open(server.URL, look{width: 360, noScript: true})
	b.until("the page is loaded again", func() bool { return loads.Load() > 1 })
	b.quiet(server.URL)
}

var updateImages = flag.Bool("update-images", false, "rewrite docs/images/status-*.png")

// TestPageImages draws the pictures of the documents, with -update-images, and
// otherwise looks that they are there: "make images" makes them.
func TestPageImages(t *testing.T) {
	const folder = "../../docs/images"
	var b *browser
	if *updateImages {
		b = startBrowser(t)
	}
	for _, p := range pages[:4] {
		file := filepath.Join(folder, "status-"+p.name+".png")
		if !*updateImages {
			if f, err := os.Stat(file); err != nil || f.Size() > 200<<10 {
				t.Errorf("%s: missing, or larger than 200 KiB: make images", file)
			}
			continue
		}
		url, _ := site(t, p.st)
		b.open(url, look{width: 1280})
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(file, small(t, b.screenshot()), 0o644))
	}
}

// quiet fails on everything that the console shows, and on every request
// that went elsewhere.
func (b *browser) quiet(origin string) {
	b.t.Helper()
	for _, name := range []string{"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"} {
		for _, e := range b.seen(name) {
			b.t.Errorf("console: %s", e)
		}
	}
	sent := b.seen("Network.requestWillBeSent")
	if len(sent) == 0 {
		b.t.Error("not one request was seen: the test looks at nothing")
	}
	for _, e := range sent {
		var r struct {
			Request struct{ URL string }
		}
		require.NoError(b.t, json.Unmarshal(e, &r))
		if !strings.HasPrefix(r.Request.URL, origin+"/") {
			b.t.Errorf("a request left the origin: %s", r.Request.URL)
		}
	}
}
