package page

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

// listed is how many full snapshots the table has at most.
const listed = 100

// recent is the span of the picture of what happened lately, where there is
// more to show than that.
const recent = 7 * day

// view is what the template sees.
type view struct {
	*status.Status
	Started bool // false: there is no status yet
	CSS     template.CSS
	Panels  []panel
	Stretch []stretch       // all but single points, the newest first
	Points  int             // full snapshots that no log follows
	Newest  []status.Backup // the full snapshots in the table, the newest first
	Older   int             // those that are not in it
	Drills  []drill
}

// The pictures are made for the narrowest screens that they are shown on, in
// pixels: page.css changes from one to the other at 900, and the least is a phone.
const (
	widest    = 800
	narrowest = 300
)

// panel is one picture, drawn for wide screens and for phones.
type panel struct {
	Heading  string
	Pictures []picture
}

func newView(st *status.Status) view {
	v := view{Status: st, Started: st != nil, CSS: template.CSS(pageCSS)}
	if st == nil {
		v.Status = &status.Status{}
		return v
	}
	all := stretchesOf(st)
	for _, s := range slices.Backward(all) {
		if s.point() {
			v.Points++
		} else {
			v.Stretch = append(v.Stretch, s)
		}
	}
	v.Newest = slices.Clone(st.Repository.Backups)
	slices.SortStableFunc(v.Newest, func(a, b status.Backup) int { return b.Time.Compare(a.Time) })
	if v.Older = len(v.Newest) - listed; v.Older > 0 {
		v.Newest = v.Newest[:listed]
	}
	v.Drills = scale{to: st.Time}.drills(st)
	v.Panels = panels(st, all)
	return v
}

// panels are the last week, where there is more, and everything.
func panels(st *status.Status, all []stretch) []panel {
	first := time.Time{}
	see := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, s := range all {
		see(s.From)
	}
	for _, b := range st.Repository.Backups {
		see(b.Time)
	}
	if first.IsZero() {
		return nil
	}
	// Less than a minute tells nothing, and a clock may be behind another's.
	if latest := st.Time.Add(-time.Minute); first.After(latest) {
		first = latest
	}
	whole := st.Time.Sub(first)
	// Room before the first full snapshot, so that it is not cut at the edge.
	begin := first.Add(-whole / 100)
	var ps []panel
	add := func(heading, id string, from time.Time) {
		ps = append(ps, panel{heading, []picture{
			draw(st, id+"w", from, st.Time, widest),
			draw(st, id+"n", from, st.Time, narrowest),
		}})
	}
	if whole > recent*10/7 {
		add("The last 7 days", "r", st.Time.Add(-recent))
		add("Everything, since "+first.UTC().Format("2 January 2006"), "a", begin)
	} else {
		add("Since "+minute(first), "a", begin)
	}
	return ps
}

// Level is the worst severity there is: critical, warning or ok; unknown before
// there is a status.
func (v view) Level() string {
	level := "ok"
	for _, p := range v.Problems {
		if p.Severity == status.Critical {
			return "critical"
		}
		level = "warning"
	}
	if !v.Started {
		return "unknown"
	}
	return level
}

// Verdict counts the problems.
func (v view) Verdict() string {
	if !v.Started {
		return "Starting"
	}
	critical := 0
	for _, p := range v.Problems {
		critical += boolean(p.Severity == status.Critical)
	}
	var parts []string
	if critical > 0 {
		parts = append(parts, fmt.Sprintf("%d critical", critical))
	}
	if n := len(v.Problems) - critical; n > 0 {
		parts = append(parts, plural(n, "warning", "warnings"))
	}
	if len(parts) == 0 {
		return "In order"
	}
	return strings.Join(parts, ", ")
}

// Worst are the problems, the critical ones first, then the newest.
func (v view) Worst() []status.Problem {
	all := slices.Clone(v.Problems)
	slices.SortStableFunc(all, func(a, b status.Problem) int {
		return cmp.Or(boolean(b.Severity == status.Critical)-boolean(a.Severity == status.Critical), b.Since.Compare(a.Since))
	})
	return all
}

// Lose is how much would be lost.
func (v view) Lose() string { return span(seconds(v.RPO.Seconds)) }

// Objective is how much may be lost; empty where nothing was asked for.
func (v view) Objective() string {
	if v.Objectives.RecoveryPoint <= 0 {
		return ""
	}
	return span(seconds(v.Objectives.RecoveryPoint))
}

// Take is how long restoring would take.
func (v view) Take() string { return span(seconds(v.RTO.Seconds)) }

func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(max(0, s) * float64(time.Second))
}

// Short is how far t is from the status's own time.
func (v view) Short(t time.Time) string { return short(t, v.Time) }

// State is a job's in a word: running, waiting, off, never, ok or failed.
func (v view) State(j status.Job) string {
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
func (v view) Percent(r *status.Run) int {
	if r.Total <= 0 {
		return -1
	}
	return int(min(100, max(0, 100*float64(r.Done)/float64(r.Total))))
}

// Stale tells that a run's failure is older than the last success.
func (v view) Stale(j status.Job) bool {
	return j.LastFailure != nil && j.LastSuccess != nil && j.LastSuccess.Finished.After(j.LastFailure.Finished)
}

// Diverges tells that a member's history differs from the others'.
func (v view) Diverges(m status.Member) bool {
	return slices.Contains(v.Cluster.Divergent, m.Name) || slices.Contains(v.Cluster.Divergent, m.ID)
}

// Expiry is a certificate's state: failed, warning or ok.
func (v view) Expiry(c status.Certificate) string {
	switch {
	case c.Error != "" || !c.Expires.After(v.Time):
		return "failed"
	case c.Expires.Before(v.Time.Add(seconds(v.Objectives.CertificateNotice))):
		return "warning"
	default:
		return "ok"
	}
}
