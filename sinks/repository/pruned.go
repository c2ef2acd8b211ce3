package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
)

const prunedPrefix = "pruned/"

// Pruned records that a backup was pruned. It is written once, before the backup's
// manifest is deleted, and deleted after the backup's objects: these, and the log behind
// the backup, stay for the grace time from when the record was stored, so that a restore
// that has begun can end.
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
// whom else or by a run that was interrupted, is no error; an unsigned object of that name
// is sinks.ErrExists.
func (r *Repository) RecordPruned(ctx context.Context, p Pruned) error {
	if err := ValidBackupID(p.Backup); err != nil {
		return err
	}
	p.Format = Format
	name := PrunedName(p.Timeline, p.Backup)
	err := r.WriteDocument(ctx, name, p)
	if !errors.Is(err, sinks.ErrExists) {
		return err
	}
	counts, errRead := r.Counts(ctx, name)
	if errRead == nil && !counts {
		return fmt.Errorf("an unsigned object has the name of the record: %w", err)
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
