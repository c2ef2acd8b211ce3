package web

import (
	"flag"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages are all kinds of page, with sentences that must be there.
var pages = []struct {
	name string
	st   *Status
	says []string
}{
	{"healthy", healthy(), []string{
		"If it all burned now: you would lose 2 seconds, and restoring would take about 48 seconds.",
		"In order", "in 17 h", "closed the stream after 211 MiB", "etcd-3", "18\u202f204 segments", "s3://backups/etcd-prod", "etcd client",
	}},
	{"gap", gapped(), []string{
		"you would lose 42 minutes", "2 critical, 1 warning", "12 entries after index 51,100,000 are missing",
		"Leave the full snapshot that is running alone.", "41\u202f%", "due etcd-3 is at it", "The objective is 60 seconds.",
	}},
	{"failed-verify", failed(), []string{"1 critical, 1 warning", "page 88,213 of bucket key is reached twice", "run requorum doctor there", "expires in 6 days"}},
	{"empty", empty(), []string{"you would lose everything: there is nothing to restore.", "Nothing is stored yet.", "not run yet", "not enabled"}},
	{"young", young(), []string{
		"you would lose 2 seconds, and how long restoring would take is not known.", "2026-11-21 10:19",
		"left alone catching up", "does not answer context deadline", "divergent",
	}},
	{"gone", gone(), []string{
		"what you would lose is not known: the repository does not answer since 10:30:13.", "spools: the repository does not answer",
		"full (NOSPACE)", "etcd-2.example.com", "stands by, runs the jobs", "verifier 6 h ago not known none runs", "listed 95 s ago", "signed by backup@example.com",
	}},
	{"hostile", hostile(), []string{evil}},
}

// TestPagesAreDrawn: each of them says everything, and no string in it becomes an element.
func TestPagesAreDrawn(t *testing.T) {
	for _, p := range pages {
		page := render(t, p.st)
		text := regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`).ReplaceAllString(strings.ReplaceAll(page, "</strong>", ""), " ")
		text = strings.Join(strings.Fields(strings.ReplaceAll(html.UnescapeString(text), "\u202f", "~")), " ")
		for _, s := range p.says {
			if s = strings.ReplaceAll(s, "\u202f", "~"); !strings.Contains(text, s) {
				t.Errorf("%s: the page does not say %q:\n%s", p.name, s, text)
			}
		}
		for element, n := range map[string]int{"<script": 1, "<style": 1, "<img": 0, "<iframe": 0, "onerror=alert": 0} {
			if got := strings.Count(strings.ReplaceAll(page, html.EscapeString(evil), ""), element); got != n {
				t.Errorf("%s: %s is there %d times, not %d times", p.name, element, got, n)
			}
		}
	}
}

// chromium runs a headless Chromium on a page. Without one it skips, and under
// REQUORUM_CI=1 it fails.
func chromium(t *testing.T, url string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		const missing = "there is no chromium: the status page is not tested in a browser (apt-get install chromium)"
		if os.Getenv("REQUORUM_CI") == "1" {
			t.Fatal(missing)
		}
		t.Skip("SKIPPED: " + missing)
	}
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--force-color-profile=srgb", "--virtual-time-budget=30000", "--user-data-dir=" + t.TempDir(),
	}, args...)
	out, err := exec.CommandContext(t.Context(), path, append(args, url)...).Output() //nolint:gosec // a browser, of this test's own pages
	require.NoError(t, err)
	return string(out)
}

// TestPageInBrowser: in a real browser the script puts newer content in place, of which no
// string does anything, and says so if the agent is gone.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes long; the page itself has tests without one")
	}
	for name, c := range map[string]struct {
		then http.Handler
		want string
	}{
		"newer": {New(hostile, http.NotFoundHandler()), `"&gt;&lt;script&gt;document.title='owned'`},
		"gone":  {http.NotFoundHandler(), "The agent does not answer: what is shown here is old."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var loads atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := New(healthy, http.NotFoundHandler())
				if r.URL.Path == "/" && loads.Add(1) > 1 {
					h = c.then
				}
				h.ServeHTTP(w, r)
			}))
			defer server.Close()
			dom := chromium(t, server.URL, "--dump-dom")
			if !strings.Contains(dom, c.want) || strings.Contains(dom, "<title>owned") || loads.Load() < 2 {
				t.Errorf("%d loads: the page is\n%s", loads.Load(), dom)
			}
		})
	}
}

var updateImages = flag.Bool("update-images", false, "rewrite docs/images/status-*.png")

// TestPageImages draws the pictures of the documents, with -update-images, and
// otherwise checks that they exist: "make images" makes them.
func TestPageImages(t *testing.T) {
	for _, p := range pages[:4] {
		file := filepath.Join("../../docs/images", "status-"+p.name+".png")
		if *updateImages {
			server := httptest.NewServer(newHandler(p.st))
			chromium(t, server.URL, "--window-size=1280,4000", "--screenshot="+file)
			server.Close()
			shrink(t, file)
		}
		if f, err := os.Stat(file); err != nil || f.Size() > 256<<10 {
			t.Errorf("%s: missing, or larger than 256 KiB: make images", file)
		}
	}
}
