package repository

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/requorum/requorum/sinks"
)

const (
	verdictsPrefix   = "verdicts/"
	verdictSeparator = "_"
	verdictLog       = "log"
	runFormat        = "%016x_%08x"
)

// VerdictName is what the name of a verdict says: a listing shows what was proved
// of which backup, and what was not.
type VerdictName struct {
	Sequence uint64 // of the run, from 1 to MaxSequence: the higher one is the newer
	ID       uint32 // random, of the run
	// Level was reached, "none" where none was; Outcome is how it ended.
	Level, Outcome string
	// Timeline and Backup are those of a backup, Timeline and Log of an archived
	// log. Timeline alone is its descriptor, none the repository's own documents.
	Timeline TimelineID
	Backup   string
	Log      bool
}

// MaxSequence is the highest number of a run: a stray object with a higher one would
// leave none for those who come after it.
const MaxSequence = 1 << 48

// String is the object's name.
func (n VerdictName) String() string {
	parts := []string{fmt.Sprintf(runFormat, n.Sequence, n.ID), n.Level, n.Outcome}
	if n.Timeline != (TimelineID{}) {
		parts = append(parts, n.Timeline.String())
	}
	switch {
	case n.Log:
		parts = append(parts, verdictLog)
	case n.Backup != "":
		parts = append(parts, n.Backup)
	}
	return verdictsPrefix + strings.Join(parts, verdictSeparator) + documentSuffix
}

// ParseVerdictName reads what VerdictName.String wrote.
func ParseVerdictName(name string) (VerdictName, error) {
	var n VerdictName
	var err error
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(name, verdictsPrefix), documentSuffix), verdictSeparator)
	if len(parts) < 4 || len(parts) > 6 {
		return n, fmt.Errorf("%q is not the name of a verdict", name)
	}
	scan(name, verdictsPrefix+runFormat, &n.Sequence, &n.ID)
	n.Level, n.Outcome = parts[2], parts[3]
	if len(parts) > 4 {
		n.Timeline, err = ParseTimelineID(parts[4])
	}
	if len(parts) > 5 && err == nil {
		if n.Log = parts[5] == verdictLog; !n.Log {
			n.Backup, err = parts[5], ValidBackupID(parts[5])
		}
	}
	lower := func(s string) bool { return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == "" }
	valid := err == nil && n.Sequence > 0 && n.Sequence <= MaxSequence && lower(n.Level) && lower(n.Outcome)
	return n, checkName(name, n.String(), "a verdict", valid)
}

// StoredVerdict is what a listing says of a verdict.
type StoredVerdict struct {
	VerdictName
	Object sinks.Object
}

// Verdicts lists the verdicts, the oldest first. Objects with other names are
// passed over. It yields one error at most, last.
func (r *Repository) Verdicts(ctx context.Context) iter.Seq2[StoredVerdict, error] {
	return func(yield func(StoredVerdict, error) bool) {
		for obj, err := range r.sink.List(ctx, verdictsPrefix, "") {
			if err != nil {
				yield(StoredVerdict{}, fmt.Errorf("list the verdicts in %s: %w", r, err))
				return
			}
			if n, err := ParseVerdictName(obj.Name); err == nil && !yield(StoredVerdict{n, obj}, nil) {
				return
			}
		}
	}
}
