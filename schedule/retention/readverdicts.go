package retention

import (
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

// said is what newer verdicts, signed with one key, say of one backup or log.
type said struct {
	timeline repository.TimelineID
	backup   string
	key      string
}

// useVerdicts finds out what each verdict is of use for.
func (r *reading) useVerdicts() {
	r.inv.Sound = len(r.verdicts.Findings) == 0
	newer := map[said][]verdict.Subject{}
	for _, e := range slices.Backward(r.verdicts.Entries) {
		if e.Err != nil { // of a newer version: what it is of use for is not known
			r.inv.Sound = false
		}
		v := Verdict{Sequence: e.Sequence, Stored: r.stored[e.Name]}
		if v.Stored.IsZero() {
			v.Stored = r.inv.Clock // since the listing
		}
		for _, s := range e.Verdict.Subjects {
			about := said{s.Timeline, s.Backup, e.Key}
			one := VerdictSubject{Timeline: s.Timeline, Backup: s.Backup,
				Spare: slices.ContainsFunc(newer[about], func(n verdict.Subject) bool { return saysAll(n, s) })}
			for _, stretch := range s.Log {
				one.Log = max(one.Log, stretch.Last)
			}
			v.Subjects = append(v.Subjects, one)
			if e.Counts && (s.Status == report.Passed || s.Status == report.Unchecked) {
				newer[about] = append(newer[about], s)
			}
		}
		r.inv.Verdicts = append(r.inv.Verdicts, v)
	}
	slices.Reverse(r.inv.Verdicts)
}

// saysAll tells that a newer word proves all that an older one did, of the same
// bytes. What a log is at an index binds all that is before it.
func saysAll(newer, older verdict.Subject) bool {
	if older.Reached != "" && !newer.Reached.Includes(older.Reached) {
		return false
	}
	for _, o := range older.Objects {
		if !slices.Contains(newer.Objects, o) {
			return false
		}
	}
	for _, s := range older.Log {
		if !slices.ContainsFunc(newer.Log, func(n verdict.Stretch) bool { return n.First <= s.Last && s.Last <= n.Last }) {
			return false
		}
	}
	return true
}
