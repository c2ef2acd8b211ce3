// Package verdict keeps in the repository what was proved about its backups.
//
// What the package promises:
//
//  1. A verdict is an object that is written once, one for each backup that a run of
//     verify checked. It names the digest of the backup's manifest, and counts only
//     while that manifest is the one that is stored: so it is about the same bytes.
//  2. A verdict that is altered, moved, or of another repository is found. That one is
//     gone cannot be seen: object lock is for that.
//  3. The newest word wins: a backup that was found damaged since is not proved
//     by what was said before.
//
// docs/format.md has every field.
package verdict

import (
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

const (
	format = 1
	// Kind is the kind of a verdict's document.
	Kind = "verdict"
)

// Verdict is what one run of verify proved of one backup, or what it found.
type Verdict struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"` // "verdict"
	// Repository is the ID in the marker: a verdict on another one is unusable.
	Repository string `json:"repository"`
	ID         uint32 `json:"id"` // random: several hosts may verify at the same time

	Tool     string    `json:"tool"` // "requorum 1.2.3"
	Host     string    `json:"host,omitempty"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"` // orders the verdicts on a backup
	// Level is the highest one that was asked for.
	Level report.Level `json:"level"`

	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup"`
	// Manifest is the SHA-256 of the manifest as it is stored.
	Manifest string `json:"manifest_sha256"`
	// Reached is the highest level that was proved with all those before it;
	// empty if none was.
	Reached  report.Level     `json:"reached,omitempty"`
	Status   report.Status    `json:"status"`
	Findings []report.Finding `json:"findings,omitempty"`
	// MoreFindings is how many there were beyond those that are kept.
	MoreFindings int `json:"more_findings,omitempty"`
	// Unchecked are the reasons why something could not be checked.
	Unchecked []string       `json:"unchecked,omitempty"`
	Phases    []report.Phase `json:"phases,omitempty"`
}

// name returns the object's name.
func (v Verdict) name() string {
	return repository.VerdictName{Timeline: v.Timeline, Backup: v.Backup, Finished: v.Finished, ID: v.ID}.String()
}

// Newest returns the newest verdict that proved the backup of m up to at least that
// level. A backup that is Damaged is not proved, nor is one by what was found before it
// was damaged.
func (l List) Newest(m *snapshot.Manifest, atLeast report.Level) (Entry, bool) {
	if _, damaged := l.Damaged(m); damaged {
		return Entry{}, false
	}
	for _, e := range slices.Backward(l.Entries) {
		switch {
		case !e.about(m):
		case e.Verdict.Status == report.Damaged:
			return Entry{}, false
		case e.Verdict.proves(atLeast):
			return e, true
		}
	}
	return Entry{}, false
}

// Damaged returns the newest verdict that found the backup of m damaged, unless a later
// run proved it up to the level that had failed: a lower one does not check what was
// wrong.
func (l List) Damaged(m *snapshot.Manifest) (Entry, bool) {
	var later []Verdict
	for _, e := range slices.Backward(l.Entries) {
		switch {
		case !e.about(m):
		case e.Verdict.Status == report.Damaged:
			if !slices.ContainsFunc(later, func(p Verdict) bool { return p.Overrules(e.Verdict) }) {
				return e, true
			}
		case e.Verdict.proves(report.Checksum):
			later = append(later, e.Verdict)
		}
	}
	return Entry{}, false
}

// Overrules reports whether a proof reached a level that a damaged verdict did not: the
// level that failed then.
func (v Verdict) Overrules(damaged Verdict) bool {
	return slices.Index(report.Levels(), v.Reached) > slices.Index(report.Levels(), damaged.Reached)
}

// Best returns the verdict on the backup of m that proved the highest level, the newest
// of these; false if it is not proved, or was found damaged since.
func (l List) Best(m *snapshot.Manifest) (Entry, bool) {
	for _, level := range slices.Backward(report.Levels()) {
		if e, ok := l.Newest(m, level); ok {
			return e, true
		}
	}
	return Entry{}, false
}

// about reports whether an entry counts for a backup as it is stored now.
func (e Entry) about(m *snapshot.Manifest) bool {
	return e.Err == nil && e.Verdict.Timeline == m.Timeline && e.Verdict.Backup == m.ID && e.Verdict.Manifest == m.Stored.SHA256
}

// proves reports whether the backup was proved up to a level.
func (v Verdict) proves(level report.Level) bool {
	return (v.Status == report.Passed || v.Status == report.Unchecked) && v.Reached.Includes(level)
}
