package web

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

const day = 24 * time.Hour

var (
	atNoon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	one    = repository.TimelineID{ClusterID: 1, N: 1}
	two    = repository.TimelineID{ClusterID: 1, N: 2}
)

func render(t *testing.T, st *Status) string {
	t.Helper()
	w := httptest.NewRecorder()
	newHandler(st).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestHeaders: the policy lets in this origin only and no inline script, and
// says the hash of the style sheet that is in the page (promise 1).
func TestHeaders(t *testing.T) {
	h := newHandler(&Status{Time: atNoon})
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/refresh.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'sha256-") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: policy %s", path, policy)
		}
	}
	for _, bad := range []struct{ method, path string }{{http.MethodPost, "/"}, {http.MethodGet, "/nowhere"}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(bad.method, "http://localhost"+bad.path, nil))
		if w.Code < 400 {
			t.Errorf("%s %s: %d", bad.method, bad.path, w.Code)
		}
	}
}

// TestNothingExternal: no address of another host is in what is embedded.
func TestNothingExternal(t *testing.T) {
	for name, text := range map[string]string{"page.html": pageHTML, "page.css": pageCSS, "refresh.js": string(refreshJS), "icon.svg": strings.ReplaceAll(string(iconSVG), `xmlns="http://www.w3.org/2000/svg"`, "")} {
		if at := regexp.MustCompile(`(https?:)?//[a-z]|@import|url\(["']?h`).FindString(text); at != "" {
			t.Errorf("%s: %q", name, at)
		}
		if strings.Contains(text, " style=") || strings.Contains(text, "innerHTML") {
			t.Errorf("%s: an inline style, or HTML from a string", name)
		}
	}
}

// TestDamagedAreShown: of many full snapshots the newest are shown, and each that is
// damaged, however old it is; the others are counted.
func TestDamagedAreShown(t *testing.T) {
	st := &Status{Time: atNoon}
	for i := range 3000 {
		b := Backup{ID: strconv.Itoa(i), Timeline: one, Time: atNoon.Add(-time.Duration(i) * time.Hour)}
		switch i {
		case 5, 700:
			b.Damaged = "torn"
		case 1999:
			b.Failed = report.Structure
		}
		st.Repository.Backups = append(st.Repository.Backups, b)
	}
	v := newView(st)
	if n := len(v.Newest); n != listed+2 || v.Newest[0].ID != "0" || v.Newest[n-2].ID != "700" || v.Newest[n-1].ID != "1999" || v.Older != 3000-n {
		t.Errorf("%d shown, %d older: %+v", n, v.Older, v.Newest)
	}
	if body := render(t, st); !strings.Contains(body, "failed structure") || !strings.Contains(body, fmt.Sprintf("%d older ones", v.Older)) {
		t.Error("the page does not show them")
	}
}

// Full snapshots without a log are no rows of a table of ranges.
func TestPage_SinglePointsOnly_NoTable(t *testing.T) {
	st := &Status{Time: atNoon}
	st.Repository.Ranges = []walreplay.Range{{Timeline: one, FirstBackup: "b", FirstIndex: 7, LastIndex: 7, From: atNoon, To: atNoon}}
	if body := render(t, st); strings.Contains(body, "Raft indexes") || !strings.Contains(body, "1 full snapshot without a log: it restores one point.") {
		t.Error(body)
	}
}

// An archiver that was killed is shown as silent until it leaves the list.
func TestPage_SilentArchiver_NoRole(t *testing.T) {
	page := func(a Agent) string { return render(t, &Status{Time: atNoon, Agents: []Agent{a}}) }
	killed := Agent{Name: "m2", Role: "writer", Lease: true, Seen: atNoon.Add(-silentAfter - time.Minute)}
	if body := page(killed); !strings.Contains(body, "no sign of life") || strings.Contains(body, "writes the archive") || strings.Contains(body, "runs the jobs") {
		t.Error(body)
	}
	killed.Seen = atNoon.Add(-silentAfter + time.Minute)
	if body := page(killed); strings.Contains(body, "no sign of life") || !strings.Contains(body, "writes the archive, runs the jobs") {
		t.Error(body)
	}
}

// TestTimedRanges: gaps have no times of their own; they lie between their
// neighbours, or last until now, and what the archiver knows is newer than the
// listing.
func TestTimedRanges(t *testing.T) {
	at := func(hours int) time.Time { return atNoon.Add(time.Duration(hours) * time.Hour) }
	st := &Status{Time: atNoon, RPO: RPO{Known: true, Until: atNoon.Add(-3 * time.Second)}}
	st.Repository.Timeline = one
	st.Repository.Backups = []Backup{{ID: "b", Timeline: one, Time: at(-20)}}
	st.Repository.Ranges = []walreplay.Range{
		{Timeline: two, FirstIndex: 1, LastIndex: 9, From: at(-30), To: at(-29)},
		{Timeline: one, FirstIndex: 300, LastIndex: 400, From: at(-10), To: at(-1)},
		{Timeline: one, FirstIndex: 200, LastIndex: 299, Gap: true, Reason: "lost"},
		{Timeline: one, FirstBackup: "b", FirstIndex: 100, LastIndex: 199, To: at(-15)},
	}
	var got []string
	for _, s := range timedRanges(st) {
		got = append(got, fmt.Sprintf("%d %v %s %s", s.Timeline.N, s.Gap, stamp(s.From)[5:], stamp(s.To)[5:]))
	}
	want := []string{
		"1 false 11-20 16:00:00 11-20 21:00:00",
		"1 true 11-20 21:00:00 11-21 02:00:00",
		"1 false 11-21 02:00:00 11-21 11:59:57",
		"2 false 11-20 06:00:00 11-20 07:00:00",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	st.Repository.Ranges = append(st.Repository.Ranges, walreplay.Range{Timeline: one, FirstIndex: 401, LastIndex: 500, Gap: true})
	for _, s := range timedRanges(st) {
		if s.FirstIndex == 401 && (!s.From.Equal(at(-1)) || !s.To.Equal(atNoon)) {
			t.Errorf("the gap at the end is from %v to %v, want until now", s.From, s.To)
		}
	}
}

// TestOddStatus: no time, number or order in a status breaks the page.
func TestOddStatus(t *testing.T) {
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, st := range []*Status{
		{},
		{Time: atNoon, RPO: RPO{Known: true, Seconds: math.Inf(1)}, RTO: RTO{Known: true, Seconds: math.NaN()}},
		{Time: atNoon, Repository: Repository{
			Timeline: two,
			Backups:  []Backup{{Timeline: one, Time: far}, {Timeline: one}, {Timeline: one, Time: atNoon}},
			Ranges: []walreplay.Range{
				{Timeline: one, From: far, To: atNoon}, {Timeline: two, Gap: true}, {Timeline: two, From: atNoon.Add(-time.Hour), To: far, LastIndex: 5},
			},
			Timelines: []repository.Timeline{{ID: two, Created: atNoon.Add(-time.Minute), Parent: &repository.Branch{Timeline: one}}, {ID: one, Parent: &repository.Branch{Timeline: two}}},
		}},
		{Time: atNoon, Repository: Repository{Backups: []Backup{{Timeline: one, Time: atNoon.Add(time.Hour)}}}},
		{Time: atNoon, Jobs: []job.Status{{Name: "drill", Running: &job.Run{Done: 9, Total: 3}, Last: &job.Run{}}}},
	} {
		if body := render(t, st); !strings.Contains(body, "</html>") {
			t.Errorf("not a whole page:\n%s", body)
		}
	}
}
