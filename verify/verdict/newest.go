package verdict

import (
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// Word is what a verdict says of one subject.
type Word struct {
	Subject
	Verdict Verdict
	Key     string // the ID of the key that it says it is signed with
	Trusted bool   // the signature was checked, and is by a trusted key
}

// Newest is the newest word that proved the backup of m up to at least that
// rung. It is of the manifest as it is stored now, and of the bytes that this
// names: m has been read (see snapshot.ReadManifest). A backup that was found
// damaged since is not proved.
func (c Chain) Newest(m *snapshot.Manifest, atLeast report.Rung) (Word, bool) {
	for _, e := range slices.Backward(c.Entries) {
		s, ok := e.about(m)
		switch {
		case !ok:
		case s.Status == report.Damaged:
			return Word{}, false
		case s.proves(m, atLeast):
			return s, true
		}
	}
	return Word{}, false
}

// Damaged is the newest word that found the backup of m damaged, unless a newer
// one proved it up to any rung.
func (c Chain) Damaged(m *snapshot.Manifest) (Word, bool) {
	for _, e := range slices.Backward(c.Entries) {
		s, ok := e.about(m)
		switch {
		case !ok:
		case s.Status == report.Damaged:
			return s, true
		case s.proves(m, report.Checksum):
			return Word{}, false
		}
	}
	return Word{}, false
}

// Best is the word on the backup of m that proved the highest rung, the newest
// of these; false where it is not proved, or was found damaged since.
func (c Chain) Best(m *snapshot.Manifest) (Word, bool) {
	for _, rung := range slices.Backward(report.Rungs()) {
		if w, ok := c.Newest(m, rung); ok {
			return w, true
		}
	}
	return Word{}, false
}

// about is what an entry that counts says of a backup.
func (e Entry) about(m *snapshot.Manifest) (Word, bool) {
	if !e.Counts {
		return Word{}, false
	}
	i := slices.IndexFunc(e.Verdict.Subjects, func(s Subject) bool { return s.Timeline == m.Timeline && s.Backup == m.ID })
	if i < 0 {
		return Word{}, false
	}
	return Word{e.Verdict.Subjects[i], e.Verdict, e.Key, e.Trusted}, true
}

// proves tells whether a subject was proved up to a rung, and is of the bytes
// that m names and was read from.
func (s Subject) proves(m *snapshot.Manifest, rung report.Rung) bool {
	if s.Status != report.Passed && s.Status != report.Unchecked || !s.Reached.Includes(rung) {
		return false
	}
	for _, o := range ObjectsOf(m) {
		if !slices.Contains(s.Objects, o) {
			return false
		}
	}
	return true
}
