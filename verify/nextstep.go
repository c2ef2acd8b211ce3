package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// noteNextSteps says what to do about damage: what can still be relied on in each
// timeline where it is, and how to get something whole.
func (e *examination) noteNextSteps() {
	for _, t := range timelinesOf(e.report.Findings()) {
		sound := fmt.Sprintf("no backup of timeline %s is proved by a verdict", t)
		if proved := e.stillProved(t); proved != "" {
			sound = fmt.Sprintf("%s of timeline %s can be relied on", proved, t)
		}
		e.note("next step: %s; take a new full backup (requorum backup)", sound)
	}
}

// noteNextStep says what to do about damage outside of a repository.
func (r *run) noteNextStep(instead string) {
	if r.report.Status() == report.Damaged {
		r.note("next step: %s; take a new full backup (requorum backup)", instead)
	}
}

// timelinesOf are those that findings are about, sorted.
func timelinesOf(all []report.Finding) []repository.TimelineID {
	var ids []repository.TimelineID
	for _, f := range all {
		folder, rest, _ := strings.Cut(f.Object, "/")
		if folder == "timelines" {
			folder = strings.TrimSuffix(rest, ".json")
		}
		if id, err := repository.ParseTimelineID(folder); err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b repository.TimelineID) int { return strings.Compare(a.String(), b.String()) })
	return ids
}

// stillProved names the newest backup of a timeline that was proved, by this run or
// by a verdict, and that this run did not find damaged; empty where none was.
func (e *examination) stillProved(t repository.TimelineID) string {
	for _, m := range slices.Backward(e.catalog.Manifests) {
		if m.Timeline != t {
			continue
		}
		status := (&report.Report{Checks: e.checksOf(m)}).Status()
		if status == report.Damaged {
			continue
		}
		if status == report.Passed {
			return fmt.Sprintf("backup %s, which passed this run up to the rung %s,", m.ID, e.Rung)
		}
		if w, ok := e.verdicts.Best(m); ok && e.unread == nil {
			return fmt.Sprintf("backup %s, which the verdict of %s proved up to the rung %s,", m.ID, w.Verdict.Finished.Format("2006-01-02"), w.Reached)
		}
	}
	return ""
}

// checksOf are the checks of one backup in this run.
func (e *examination) checksOf(m *snapshot.Manifest) []report.Check {
	var own []report.Check
	name := fullName(m.Timeline, m.ID)
	for _, c := range e.report.Checks {
		if c.Object == name || strings.HasPrefix(c.Object, name+"/") {
			own = append(own, c)
		}
	}
	return own
}
