package verdict

import (
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// What a verdict keeps of a subject. The rest is in the report: a verdict says
// that, and roughly where, it is damaged.
const (
	maxFindings = 20
	maxReasons  = 5
	maxText     = 500 // bytes
	// maxRanges is how many parts of a log, at about 250 bytes: the last ones.
	maxRanges = 1000
)

// ObjectsOf are the objects of a backup: the one that its manifest describes, and
// the manifest itself, since the hashes and facts in it are what was compared.
func ObjectsOf(m *snapshot.Manifest) []report.Object {
	return []report.Object{
		{Name: m.Object.Name, StoredSize: m.Object.StoredSize, StoredSHA256: m.Object.StoredSHA256},
		{Name: repository.ManifestName(m.Timeline, m.ID), StoredSize: m.Stored.Size, StoredSHA256: m.Stored.SHA256},
	}
}

// FromReport makes the verdicts of a report. Checks are put together by what they
// are of: each backup, each timeline's log, each timeline, the repository; of the
// last two there is a verdict only where something is wrong. What was not read whole
// is not bound, and so not proved by the verdict.
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
		s := subjectOf(p, checks[p])
		if p.backup == "" && len(s.Log) == 0 && s.Status == report.Passed && len(places) > 1 {
			continue
		}
		all = append(all, Verdict{Tool: r.Tool, Started: r.Started, Finished: r.Finished, Level: r.Level, Subject: s})
	}
	return all
}

// place is where in a repository an object belongs.
type place struct {
	timeline repository.TimelineID
	backup   string
	log      bool
}

// TimelineOf is the timeline that an object belongs to, by its name; zero for none.
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
	switch {
	case kind == "full" && repository.ValidBackupID(id) == nil:
		return place{timeline: t, backup: id}
	case kind == "log", kind == "marks", kind == "gaps", len(kind) == 2 && kind[0] == 'l' && '0' <= kind[1] && kind[1] <= '9':
		return place{timeline: t, log: true}
	}
	return place{timeline: t}
}

func subjectOf(p place, checks []report.Check) Subject {
	r := report.Report{Checks: checks}
	s := Subject{Timeline: p.timeline, Backup: p.backup, Reached: reached(checks), Status: r.Status()}
	for _, c := range checks {
		s.Objects, s.Log = append(s.Objects, c.Objects...), append(s.Log, c.Log...)
		if c.NotYet && s.Status == report.Passed {
			s.Status = report.Unchecked // not proved as far as was asked for
		}
		if c.Status == report.Unchecked && len(s.Unchecked) < maxReasons {
			if reason := string(c.Level) + ": " + shorten(c.Reason); !slices.Contains(s.Unchecked, reason) {
				s.Unchecked = append(s.Unchecked, reason)
			}
		}
		switch {
		case len(c.Phases) == 0:
		case c.Level == report.Drill: // they are a whole recovery
			s.Phases = slices.Clone(c.Phases)
		default:
			s.Phases = append(s.Phases, c.Phases...)
		}
	}
	s.Log = s.Log[max(0, len(s.Log)-maxRanges):]
	found := r.Findings()
	s.MoreFindings = max(0, len(found)-maxFindings)
	for _, f := range found[:len(found)-s.MoreFindings] {
		f.Where, f.Text = shorten(f.Where), shorten(f.Text)
		s.Findings = append(s.Findings, f)
	}
	return s
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
