package web

// The status page is one HTML page, made whole by the server
// from a Status, with the styles in it. It promises:
//
//  1. Nothing on it comes from another host, and its Content-Security-Policy
//     lets nothing: the only script is a file of the same origin.
//  2. The script only fetches the page again. Without it all is there, and the
//     page reloads itself.
//  3. Every string of the status is escaped: names of members, reasons and
//     endpoints may be anybody's.
//  4. What colour says is said in words or shapes too.
//
// All times on it are UTC.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page is in the binary
	"encoding/base64"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed refresh.js
var refreshJS []byte

//go:embed icon.svg
var iconSVG []byte

// servePage serves the page of the status, its script and its icon.
func (a *api) servePage(mux *http.ServeMux) {
	page := template.Must(template.New("page.html").Funcs(words()).Parse(pageHTML))
	policy := policy()
	serve := func(path, kind string, body func() ([]byte, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			// Made whole before the first byte goes out: half a page looks like one.
			data, err := body()
			if err != nil {
				http.Error(w, "the status page cannot be made: "+err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Security-Policy", policy)
			_, _ = w.Write(data) // the browser has gone
		})
	}
	serve("/{$}", "text/html; charset=utf-8", func() ([]byte, error) {
		var out bytes.Buffer
		err := page.Execute(&out, newView(a.status()))
		return out.Bytes(), err
	})
	serve("/refresh.js", "text/javascript; charset=utf-8", func() ([]byte, error) { return refreshJS, nil })
	serve("/icon.svg", "image/svg+xml", func() ([]byte, error) { return iconSVG, nil })
}

// policy is the Content-Security-Policy: scripts and requests of this origin
// only, no inline script at all, and the one style sheet by its hash.
func policy() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		"img-src 'self'",
		"connect-src 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

// listed is how many rows a table of what is stored has at most, beside those of damaged
// full snapshots: 'requorum list' shows all.
const listed = 8

// view is what the template sees.
type view struct {
	*Status
	CSS         template.CSS
	Ranges      []walreplay.Range // all but single points, the newest first, see timedRanges
	OlderRanges int               // those that are not in it
	Points      int               // full snapshots that no log follows
	Newest      []Backup          // the full snapshots in the table, the newest first
	Older       int               // those that are not in it
	Everything  bool              // would be lost: a listing shows nothing to restore
}

func newView(st *Status) view {
	v := view{Status: st, CSS: template.CSS(pageCSS)}
	for _, s := range slices.Backward(timedRanges(st)) {
		switch {
		case !s.Gap && s.FirstIndex == s.LastIndex:
			v.Points++
		case len(v.Ranges) < listed:
			v.Ranges = append(v.Ranges, s)
		default:
			v.OlderRanges++
		}
	}
	backups := slices.Clone(st.Repository.Backups)
	slices.SortStableFunc(backups, func(a, b Backup) int { return b.Time.Compare(a.Time) })
	for i, b := range backups {
		if i < listed || bad(b) {
			v.Newest = append(v.Newest, b)
		}
	}
	v.Older = len(backups) - len(v.Newest)
	v.Everything = !st.RPO.Known && st.RPO.Unknown.IsZero() && !st.Repository.Listed.IsZero() &&
		!slices.ContainsFunc(st.Repository.Ranges, func(r walreplay.Range) bool { return !r.Gap })
	return v
}

// Role is the role of this agent's archiver; empty without one.
func (v view) Role() string {
	if v.Archive == nil {
		return ""
	}
	return string(v.Archive.Role)
}

// Level is the worst severity there is: critical, warning or ok.
func (v view) Level() string {
	level := "ok"
	for _, p := range v.Problems {
		if p.Severity == Critical {
			return "critical"
		}
		level = "warning"
	}
	return level
}

// Verdict counts the problems.
func (v view) Verdict() string {
	critical := 0
	for _, p := range v.Problems {
		critical += boolean(p.Severity == Critical)
	}
	var parts []string
	if critical > 0 {
		parts = append(parts, fmt.Sprintf("%d critical", critical))
	}
	if n := len(v.Problems) - critical; n > 0 {
		parts = append(parts, report.Counted(n, "warning", "warnings"))
	}
	if len(parts) == 0 {
		return "In order"
	}
	return strings.Join(parts, ", ")
}

// Worst are the problems, the critical ones first, then the newest.
func (v view) Worst() []Problem {
	all := slices.Clone(v.Problems)
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(boolean(b.Severity == Critical)-boolean(a.Severity == Critical), b.Since.Compare(a.Since))
	})
	return all
}

func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(max(0, s) * float64(time.Second))
}

// Short is how far t is from the status's own time.
func (v view) Short(t time.Time) string { return short(t, v.Time) }

// State is a job's in a word: running, waiting, off, never, ok or failed.
func (v view) State(j job.Status) string {
	switch {
	case j.Running != nil:
		return "running"
	case j.Waiting != "":
		return "waiting"
	case j.Last != nil && !j.Last.OK:
		return "failed"
	case j.Off != "":
		return "off"
	case j.Last == nil:
		return "never"
	default:
		return "ok"
	}
}

// Percent is how far a run is; -1 where that is not known.
func (v view) Percent(r *job.Run) int {
	if r.Total <= 0 {
		return -1
	}
	return int(min(99, max(0, 100*float64(r.Done)/float64(r.Total)))) // what is read is not stored yet
}

// Stale says that a run's failure is older than the last success.
func (v view) Stale(j job.Status) bool {
	return j.LastFailure != nil && j.LastSuccess != nil && j.LastSuccess.Finished.After(j.LastFailure.Finished)
}

// Diverges says that a member's history differs from the others'.
func (v view) Diverges(m Member) bool {
	return slices.Contains(v.Cluster.Divergent, m.Name) || slices.Contains(v.Cluster.Divergent, m.ID)
}

// Expiry is a certificate's state: failed, warning or ok.
func (v view) Expiry(c Certificate) string {
	switch {
	case c.Error != "" || !c.Expires.After(v.Time):
		return "failed"
	case c.Expires.Before(v.Time.Add(seconds(v.Objectives.CertificateNotice))):
		return "warning"
	default:
		return "ok"
	}
}

// words are what the template writes times, sizes and numbers with.
func words() template.FuncMap {
	return template.FuncMap{
		"stamp":    stamp,
		"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"role":     roleInWords,
		"minute":   minute,
		"machine":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"size":     size,
		"number":   grouped,
		"unsigned": func(n uint64) string { return grouped(int64(min(n, math.MaxInt64))) },
		"long":     span,
		"lasting":  func(s float64) string { return span(seconds(s)) },
		"bad":      bad,
		"remarks":  func(b Backup) string { return strings.Join(remarks(b), ", ") },
	}
}

// roleInWords is what an agent does, by its archiver's role; empty for one that archives
// no log.
func roleInWords(role string) string {
	switch archive.Role(role) {
	case archive.Writer:
		return "writes the archive"
	case archive.Spooling:
		return "spools: the repository does not answer"
	case archive.Follower:
		return "stands by"
	case archive.Starting, archive.Comparing:
		return "starts"
	case archive.Stopped:
		return "stopped"
	case "":
		return "archives no log"
	}
	return role
}

// span says how long d is in words, rounded up: what would be lost is never
// said to be less than it is.
func span(d time.Duration) string {
	for _, u := range []struct {
		below, unit time.Duration
		name        string
	}{
		{2 * time.Minute, time.Second, "second"},
		{2 * time.Hour, time.Minute, "minute"},
		{48 * time.Hour, time.Hour, "hour"},
		{math.MaxInt64, 24 * time.Hour, "day"},
	} {
		if d > u.below-u.unit && u.name != "day" {
			continue
		}
		n := int64(math.Ceil(float64(d) / float64(u.unit)))
		switch {
		case n <= 0:
			return "nothing"
		case n == 1:
			return "1 " + u.name
		default:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.String()
}

// short is how far t is from now, in few letters: "3 min ago", "in 4 h".
func short(t, now time.Time) string {
	d := now.Sub(t)
	ahead := d < 0
	d = d.Abs()
	var s string
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		s = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		s = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		s = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		s = fmt.Sprintf("%d days", int(d.Hours()/24))
	}
	if ahead {
		return "in " + s
	}
	return s + " ago"
}

// stamp is t to the second, minute t to the minute. Both are UTC, which the
// page says at its top.
func stamp(t time.Time) string  { return t.UTC().Format("2006-01-02 15:04:05") }
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// grouped writes n with thin spaces between thousands.
func grouped(n int64) string {
	return strings.ReplaceAll(humanize.Comma(n), ",", "\u202f")
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bad says that a full snapshot is not one to restore from.
func bad(b Backup) bool { return b.Damaged != "" || b.Failed != "" }

// remarks are what there is to say of one, the worst first.
func remarks(b Backup) []string {
	var all []string
	if b.Failed != "" {
		all = append(all, "failed "+string(b.Failed))
	}
	if b.Damaged != "" {
		all = append(all, "damaged: "+b.Damaged)
	}
	switch {
	case b.Proved != "":
		all = append(all, "proved by "+string(b.Proved))
	case !bad(b):
		all = append(all, "not verified yet")
	}
	if b.Pinned {
		all = append(all, "pinned")
	}
	return all
}

// timedRanges are the ranges of the repository, each with times at both ends. A gap has
// none of its own where nothing was observed in it: it is between its neighbours, or
// goes on until now.
func timedRanges(st *Status) []walreplay.Range {
	begun := map[string]time.Time{}
	for _, b := range st.Repository.Backups {
		begun[b.Timeline.String()+"/"+b.ID] = b.Time
	}
	all := slices.Clone(st.Repository.Ranges)
	for i := range all {
		if s := &all[i]; s.From.IsZero() {
			s.From = begun[s.Timeline.String()+"/"+s.FirstBackup]
		}
	}
	slices.SortStableFunc(all, func(a, b walreplay.Range) int {
		return cmp.Or(cmp.Compare(a.Timeline.ClusterID, b.Timeline.ClusterID), cmp.Compare(a.Timeline.N, b.Timeline.N), cmp.Compare(a.FirstIndex, b.FirstIndex))
	})
	for i := range all {
		s := &all[i]
		alone := func(j int) bool { return j < 0 || j >= len(all) || all[j].Timeline != s.Timeline }
		if s.From.IsZero() && !alone(i-1) {
			s.From = all[i-1].To
		}
		if s.To.IsZero() && !alone(i+1) {
			s.To = all[i+1].From
		}
		last := alone(i+1) && s.Timeline == st.Repository.Timeline
		if last && s.Gap && s.To.IsZero() {
			s.To = st.Time
		}
		// The archive is ahead of the last listing.
		if last && !s.Gap && st.RPO.Known && st.RPO.Until.After(s.To) {
			s.To = st.RPO.Until
		}
		if s.To.Before(s.From) {
			s.To = s.From
		}
	}
	return slices.DeleteFunc(all, func(s walreplay.Range) bool { return s.From.IsZero() && s.To.IsZero() })
}
