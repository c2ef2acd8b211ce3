package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const prunedLogBase = "/log-"

// PrunedLog says that the log of a timeline was let go up to and with Index. It
// is written before any of it is deleted, so that whoever is interrupted leaves a
// log that begins with holes, and nobody takes these for loss. The highest index
// counts; older records may go.
type PrunedLog struct {
	Format   int        `json:"format"`
	Timeline TimelineID `json:"timeline"`
	Index    uint64     `json:"index"`
	Reason   string     `json:"reason"`
	Created  time.Time  `json:"created"` // by the clock of the tool that wrote it
}

// PrunedLogName is the name of the record that a log was let go up to an index.
func PrunedLogName(t TimelineID, index uint64) string {
	return fmt.Sprintf("%s%s%s%016x%s", prunedPrefix, t, prunedLogBase, index, documentSuffix)
}

// ParsePrunedLogName reads what PrunedLogName wrote.
func ParsePrunedLogName(name string) (t TimelineID, index uint64, err error) {
	timeline, base, _ := strings.Cut(strings.TrimPrefix(name, prunedPrefix), prunedLogBase)
	t, err = ParseTimelineID(timeline)
	index = parseHex(strings.TrimSuffix(base, documentSuffix), &err)
	// The round trip refuses every second spelling of a name.
	if err != nil || PrunedLogName(t, index) != name {
		return TimelineID{}, 0, fmt.Errorf("%q is not the name of a record that a log was let go", name)
	}
	return t, index, nil
}

// RecordPrunedLog records that the log of a timeline is let go up to an index.
// One that is recorded already is no error.
func (r *Repository) RecordPrunedLog(ctx context.Context, p PrunedLog) error {
	p.Format = Format
	err := r.WriteDocument(ctx, PrunedLogName(p.Timeline, p.Index), p)
	if errors.Is(err, sinks.ErrExists) {
		return nil
	}
	return err
}

// ReadPrunedLog reads the record called name. Damage, and a record that belongs
// elsewhere, is ErrAltered.
func (r *Repository) ReadPrunedLog(ctx context.Context, name string) (PrunedLog, error) {
	var p PrunedLog
	if err := r.ReadDocument(ctx, name, &p); err != nil {
		return PrunedLog{}, err
	}
	if err := r.belongs(name, p.Format, PrunedLogName(p.Timeline, p.Index) == name, fmt.Sprintf("about timeline %s up to index %d", p.Timeline, p.Index)); err != nil {
		return PrunedLog{}, err
	}
	return p, nil
}

// PrunedLogs are the names of the records that log of a timeline was let go, those
// of the highest index first. A name alone proves nothing: ReadPrunedLog does.
func (r *Repository) PrunedLogs(ctx context.Context, t TimelineID) ([]string, error) {
	all, err := r.namesBelow(ctx, prunedPrefix+t.String()+prunedLogBase, fmt.Sprintf("records that log of timeline %s was let go", t), func(name string) bool {
		_, _, err := ParsePrunedLogName(name)
		return err == nil
	})
	slices.Reverse(all) // names are sorted by index
	return all, err
}
