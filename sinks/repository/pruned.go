package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const prunedPrefix = "pruned/"

// Pruned says that a backup was let go. It is written once, before anything of
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
func PrunedName(t TimelineID, backup string) string {
	return prunedPrefix + t.String() + "/" + backup + documentSuffix
}

// ParsePrunedName reads what PrunedName wrote.
func ParsePrunedName(name string) (t TimelineID, backup string, err error) {
	folder, base, _ := strings.Cut(strings.TrimPrefix(name, prunedPrefix), "/")
	backup = strings.TrimSuffix(base, documentSuffix)
	t, err = ParseTimelineID(folder)
	// The round trip refuses every second spelling of a name.
	if err != nil || ValidBackupID(backup) != nil || PrunedName(t, backup) != name {
		return TimelineID{}, "", fmt.Errorf("%q is not the name of a pruned backup's record", name)
	}
	return t, backup, nil
}

// RecordPruned records that a backup is pruned. One that is recorded already, by
// whom else or by a run that was interrupted, is no error.
func (r *Repository) RecordPruned(ctx context.Context, p Pruned) error {
	if err := ValidBackupID(p.Backup); err != nil {
		return err
	}
	p.Format = Format
	err := r.WriteDocument(ctx, PrunedName(p.Timeline, p.Backup), p)
	if errors.Is(err, sinks.ErrExists) {
		return nil
	}
	return err
}

// ReadPruned reads the record called name. Damage, and a record that belongs to
// another backup, is ErrAltered.
func (r *Repository) ReadPruned(ctx context.Context, name string) (Pruned, error) {
	var p Pruned
	if err := r.ReadDocument(ctx, name, &p); err != nil {
		return Pruned{}, err
	}
	if err := r.belongs(name, p.Format, PrunedName(p.Timeline, p.Backup) == name, fmt.Sprintf("about backup %s of timeline %s", p.Backup, p.Timeline)); err != nil {
		return Pruned{}, err
	}
	return p, nil
}

// PrunedNames lists the records of pruned backups. Objects with other names are
// passed over.
func (r *Repository) PrunedNames(ctx context.Context) ([]string, error) {
	return r.namesBelow(ctx, prunedPrefix, "records of pruned backups", func(name string) bool {
		_, _, err := ParsePrunedName(name)
		return err == nil
	})
}
