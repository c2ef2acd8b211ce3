package verdict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// What a verdict keeps of a backup. The rest is in the report: a verdict says
// that, and roughly where, it is damaged.
const (
	maxFindings = 20
	maxReasons  = 5
	maxText     = 500 // bytes
)

// FromReport makes the verdicts of a report: one for each backup whose manifest was read.
func FromReport(r *report.Report) []Verdict {
	checks := map[place][]report.Check{}
	var places []place // in the order of the report
	for _, c := range r.Checks {
		p := placeOf(c.Object)
		if _, known := checks[p]; !known {
			places = append(places, p)
		}
		checks[p] = append(checks[p], c)
	}
	var all []Verdict
	for _, p := range places {
		v := Verdict{Tool: r.Tool, Started: r.Started, Finished: r.Finished, Level: r.Level, Timeline: p.timeline, Backup: p.backup}
		if v.add(checks[p]); p.backup != "" && v.Manifest != "" {
			all = append(all, v)
		}
	}
	return all
}

// place is where in a repository an object belongs: to a backup, to the rest of a
// timeline, or to neither.
type place struct {
	timeline repository.TimelineID
	backup   string
}

// TimelineOf returns the timeline that an object belongs to, by its name; zero for none.
func TimelineOf(object string) repository.TimelineID { return placeOf(object).timeline }

// placeOf reads it from the name of an object, or of a check's object.
func placeOf(object string) place {
	folder, rest, _ := strings.Cut(object, "/")
	if folder == "timelines" {
		folder, rest = strings.TrimSuffix(rest, ".json"), ""
	}
	t, err := repository.ParseTimelineID(folder)
	if err != nil {
		return place{}
	}
	kind, rest, _ := strings.Cut(rest, "/")
	id, _, _ := strings.Cut(rest, "/")
	if kind == "full" && repository.ValidBackupID(id) == nil {
		return place{timeline: t, backup: id}
	}
	return place{timeline: t}
}

// add adds what the checks of a backup found.
func (v *Verdict) add(checks []report.Check) {
	r := report.Report{Checks: checks}
	v.Reached, v.Status = reached(checks), r.Status()
	for _, c := range checks {
		v.Manifest = cmp.Or(v.Manifest, c.Manifest)
		if c.NotYet && v.Status == report.Passed {
			v.Status = report.Unchecked // not proved as far as was asked for
		}
		if c.Status == report.Unchecked && len(v.Unchecked) < maxReasons {
			if reason := string(c.Level) + ": " + shorten(c.Reason); !slices.Contains(v.Unchecked, reason) {
				v.Unchecked = append(v.Unchecked, reason)
			}
		}
		switch {
		case len(c.Phases) == 0:
		case c.Level == report.Drill: // they are a whole recovery
			v.Phases = slices.Clone(c.Phases)
		default:
			v.Phases = append(v.Phases, c.Phases...)
		}
	}
	found := r.Findings()
	v.MoreFindings = max(0, len(found)-maxFindings)
	for _, f := range found[:len(found)-v.MoreFindings] {
		f.Where, f.Text = shorten(f.Where), shorten(f.Text)
		v.Findings = append(v.Findings, f)
	}
}

// reached is the highest level on which all checks passed, with all before it. The
// replay alone is left out where it does not apply, to a backup that never had a
// log: the drill counts without it.
func reached(checks []report.Check) report.Level {
	var highest report.Level
	for _, level := range report.Levels() {
		passed := false
		for _, c := range checks {
			if c.Level != level {
				continue
			}
			if c.Status != report.Passed {
				return highest
			}
			passed = true
		}
		if !passed && level == report.Replay {
			continue
		}
		if !passed {
			return highest
		}
		highest = level
	}
	return highest
}

// shorten cuts text that is too long between two characters.
func shorten(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
