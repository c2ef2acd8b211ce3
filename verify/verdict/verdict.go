// Package verdict keeps in the repository what was proved about it.
//
// What the package promises:
//
//  1. A verdict is an object that is written once, one for each backup and each log
//     that a run of verify looked at; its name says what was proved of which. It
//     binds what was proved to the bytes that were seen: it counts for a backup only
//     while the backup's manifest is the same one, and so names the same stored bytes.
//  2. One that is altered, moved, or of another repository is found. That one is
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

// Verdict is what one run of verify proved of one subject, or what it found.
type Verdict struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"` // "verdict"
	// Repository is the ID in the marker: a verdict of another one is foreign.
	Repository string `json:"repository"`
	// Sequence is the run's, from 1 on, and ID random: runs at the same time may
	// have the same sequence.
	Sequence uint64 `json:"sequence"`
	ID       uint32 `json:"id"`

	Tool     string    `json:"tool"` // "requorum 1.2.3"
	Host     string    `json:"host,omitempty"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Level is the highest one that was asked for.
	Level report.Level `json:"level"`
	Subject
}

// name is the object's.
func (v Verdict) name() string {
	level := string(v.Reached)
	if level == "" {
		level = "none"
	}
	return repository.VerdictName{
		Sequence: v.Sequence, ID: v.ID, Level: level, Outcome: string(v.Status),
		Timeline: v.Timeline, Backup: v.Backup, Log: len(v.Log) > 0 && v.Backup == "",
	}.String()
}

// Subject is what a verdict is about: a backup (Timeline and Backup), the
// archived log of a timeline (Timeline and Log), a timeline's descriptor
// (Timeline alone), or the documents of the repository itself (none).
type Subject struct {
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	Backup   string                `json:"backup,omitempty"`
	Log      []report.Range        `json:"log,omitempty"`
	// Reached is the highest level that was proved with all those before it;
	// empty where none was.
	Reached report.Level  `json:"reached,omitempty"`
	Status  report.Status `json:"status"`
	// Objects are those that were read whole.
	Objects  []report.Object  `json:"objects,omitempty"`
	Findings []report.Finding `json:"findings,omitempty"`
	// MoreFindings is how many there were beyond those that are kept.
	MoreFindings int `json:"more_findings,omitempty"`
	// Unchecked are the reasons why something could not be checked.
	Unchecked []string       `json:"unchecked,omitempty"`
	Phases    []report.Phase `json:"phases,omitempty"`
}

// Newest is the newest verdict that proved the backup of m up to at least that
// level. It is of the manifest as it is stored now, and of the bytes that this
// names: m has been read (see snapshot.ReadManifest). A backup that is Damaged is not
// proved, nor is one by what was found before it was damaged.
func (l List) Newest(m *snapshot.Manifest, atLeast report.Level) (Entry, bool) {
	if _, damaged := l.Damaged(m); damaged {
		return Entry{}, false
	}
	for _, e := range slices.Backward(l.Entries) {
		switch {
		case !e.about(m):
		case e.Verdict.Status == report.Damaged:
			return Entry{}, false
		case e.Verdict.proves(m, atLeast):
			return e, true
		}
	}
	return Entry{}, false
}

// Damaged is the newest verdict that found the backup of m damaged, unless a later run
// proved it up to the level that had failed: a lower one does not look at what was wrong.
func (l List) Damaged(m *snapshot.Manifest) (Entry, bool) {
	var later []Entry // newest first
	for _, e := range slices.Backward(l.Entries) {
		switch {
		case !e.about(m):
		case e.Verdict.Status == report.Damaged:
			if !slices.ContainsFunc(later, func(p Entry) bool {
				return p.Sequence > e.Sequence && p.Verdict.Overrules(e.Verdict.Subject)
			}) {
				return e, true
			}
		case e.Verdict.proves(m, report.Checksum):
			later = append(later, e)
		}
	}
	return Entry{}, false
}

// Overrules says that a proof reached a level that a damaged verdict did not: the one
// that failed then.
func (s Subject) Overrules(damaged Subject) bool {
	return slices.Index(report.Levels(), s.Reached) > slices.Index(report.Levels(), damaged.Reached)
}

// Best is the verdict on the backup of m that proved the highest level, the newest
// of these; false where it is not proved, or was found damaged since.
func (l List) Best(m *snapshot.Manifest) (Entry, bool) {
	for _, level := range slices.Backward(report.Levels()) {
		if e, ok := l.Newest(m, level); ok {
			return e, true
		}
	}
	return Entry{}, false
}

// about reports whether an entry counts and is of a backup.
func (e Entry) about(m *snapshot.Manifest) bool {
	return e.Err == nil && e.Verdict.Timeline == m.Timeline && e.Verdict.Backup == m.ID
}

// proves reports whether a subject was proved up to a level, and is of the bytes
// that m names and was read from.
func (s Subject) proves(m *snapshot.Manifest, level report.Level) bool {
	if s.Status != report.Passed && s.Status != report.Unchecked || !s.Reached.Includes(level) {
		return false
	}
	for _, o := range ObjectsOf(m) {
		if !slices.Contains(s.Objects, o) {
			return false
		}
	}
	return true
}
