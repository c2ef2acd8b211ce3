package repository

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const (
	verdictsPrefix = "verdicts/"
	// verdictTimeLayout orders the verdicts on one backup by their names.
	verdictTimeLayout = "20060102T150405.000000000Z"
)

// VerdictName holds what the name of a verdict says: what it is about, and when it was
// reached.
type VerdictName struct {
	Timeline TimelineID
	Backup   string
	Finished time.Time // by the clock of the host that verified
	ID       uint32    // random
}

// String returns the object's name.
func (n VerdictName) String() string {
	return fmt.Sprintf("%s%s/%s/%s-%08x%s", verdictsPrefix, n.Timeline, n.Backup, n.Finished.UTC().Format(verdictTimeLayout), n.ID, documentSuffix)
}

// ParseVerdictName reads a name that VerdictName.String wrote.
func ParseVerdictName(name string) (VerdictName, error) {
	var n VerdictName
	var errTimeline, errTime error
	parts := strings.Split(strings.TrimPrefix(name, verdictsPrefix), "/")
	if len(parts) != 3 {
		return n, fmt.Errorf("%q is not the name of a verdict", name)
	}
	n.Timeline, errTimeline = ParseTimelineID(parts[0])
	n.Backup = parts[1]
	stamp, random, _ := strings.Cut(strings.TrimSuffix(parts[2], documentSuffix), "-")
	n.Finished, errTime = time.Parse(verdictTimeLayout, stamp)
	scan(random, "%08x", &n.ID)
	return n, checkName(name, n.String(), "a verdict", errTimeline == nil && errTime == nil && ValidBackupID(n.Backup) == nil)
}

// StoredVerdict holds what a listing says of a verdict.
type StoredVerdict struct {
	VerdictName
	Object sinks.Object
}

// Verdicts lists the verdicts: those on one backup together, the oldest first. Objects
// with other names are skipped. It yields one error at most, last.
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
