package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
)

const prunedPrefix = "pruned/"

// Pruned says that a backup was pruned. It is written once, before anything of
// the backup is deleted: from then on nobody misses what verdicts know of it. It
// may go itself when no verdict names the backup any more.
type Pruned struct {
	Format   int        `json:"format"`
	Timeline TimelineID `json:"timeline"`
	Backup   string     `json:"backup"`
	Reason   string     `json:"reason"`  // such as the rule that let it go
	Created  time.Time  `json:"created"` // by the clock of the tool that wrote it
	// RaftIndex is the backup's, whose manifest is gone afterwards: the log behind
	// it stays as long as its object; 0 where it is not known.
	RaftIndex uint64 `json:"raft_index,omitempty"`
}

// PrunedName is the name of the record that a backup was pruned. It is not in the
// timeline's folder, so that it outlives the last object there.
func PrunedName(t TimelineID, backup string) string { return backupName(prunedPrefix, t, backup) }

// ParsePrunedName reads what PrunedName wrote.
func ParsePrunedName(name string) (t TimelineID, backup string, err error) {
	return parseBackupName(name, prunedPrefix, "a pruned backup's record")
}

// RecordPruned records that a backup is pruned. One that is recorded already, by
// whom else or by a run that was interrupted, is no error; a foreign object of that name
// is sinks.ErrExists.
func (r *Repository) RecordPruned(ctx context.Context, p Pruned) error {
	if err := ValidBackupID(p.Backup); err != nil {
		return err
	}
	p.Format = Format
	return r.record(ctx, PrunedName(p.Timeline, p.Backup), p)
}

// record writes what somebody else may have written before.
func (r *Repository) record(ctx context.Context, name string, v any) error {
	err := r.WriteDocument(ctx, name, v)
	if !errors.Is(err, sinks.ErrExists) {
		return err
	}
	counts, errRead := r.Counts(ctx, name)
	if errRead == nil && !counts {
		return fmt.Errorf("a foreign object has the name of the record: %w", err)
	}
	return errRead
}

// ReadPruned reads the record called name. Damage, and a record that belongs to
// another backup, is ErrAltered.
func (r *Repository) ReadPruned(ctx context.Context, name string) (Pruned, error) {
	return Read(ctx, r, name, func(p Pruned) (int, bool, string) {
		return p.Format, PrunedName(p.Timeline, p.Backup) == name, fmt.Sprintf("about backup %s of timeline %s", p.Backup, p.Timeline)
	})
}

// PrunedNames lists the records of pruned backups. Objects with other names are
// passed over.
func (r *Repository) PrunedNames(ctx context.Context) ([]string, error) {
	return r.namesBelow(ctx, prunedPrefix, "records of pruned backups", func(name string) error {
		_, _, err := ParsePrunedName(name)
		return err
	})
}

const (
	prunedLogBase   = "/log-"
	prunedLogFormat = prunedPrefix + timelineFormat + prunedLogBase + "%016x" + documentSuffix
)

// PrunedLog says that the log of a timeline was pruned up to and with Index. It
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

// PrunedLogName is the name of the record that a log was pruned up to an index.
func PrunedLogName(t TimelineID, index uint64) string {
	return fmt.Sprintf(prunedLogFormat, t.ClusterID, t.N, index)
}

// ParsePrunedLogName reads what PrunedLogName wrote.
func ParsePrunedLogName(name string) (t TimelineID, index uint64, err error) {
	scan(name, prunedLogFormat, &t.ClusterID, &t.N, &index)
	return t, index, checkName(name, PrunedLogName(t, index), "a record that a log was pruned", t.N > 0)
}

// RecordPrunedLog records that the log of a timeline is pruned up to an index.
// One that is recorded already is no error; a foreign object of that name is
// sinks.ErrExists.
func (r *Repository) RecordPrunedLog(ctx context.Context, p PrunedLog) error {
	p.Format = Format
	return r.record(ctx, PrunedLogName(p.Timeline, p.Index), p)
}

// ReadPrunedLog reads the record called name. Damage, and a record that belongs
// elsewhere, is ErrAltered.
func (r *Repository) ReadPrunedLog(ctx context.Context, name string) (PrunedLog, error) {
	return Read(ctx, r, name, func(p PrunedLog) (int, bool, string) {
		return p.Format, PrunedLogName(p.Timeline, p.Index) == name, fmt.Sprintf("about timeline %s up to index %d", p.Timeline, p.Index)
	})
}

// PrunedLogs are the names of the records that log of a timeline was pruned, those
// of the highest index first. A name alone proves nothing: ReadPrunedLog does.
func (r *Repository) PrunedLogs(ctx context.Context, t TimelineID) ([]string, error) {
	all, err := r.namesBelow(ctx, prunedPrefix+t.String()+prunedLogBase, fmt.Sprintf("records that log of timeline %s was pruned", t), func(name string) error {
		_, _, err := ParsePrunedLogName(name)
		return err
	})
	slices.Reverse(all) // names are sorted by index
	return all, err
}
