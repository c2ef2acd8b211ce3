package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// prunedObject is what reports call the records of pruned backups.
const prunedObject = "pruned"

// prunedBackups are those of which a record says that they were pruned, whatever
// is left of them. It is listed after the catalog was read: what was pruned before
// that has its record by now.
func (e *examination) prunedBackups(ctx context.Context) (map[backupID]bool, error) {
	if e.pruned != nil {
		return e.pruned, nil
	}
	names, err := e.repo.PrunedNames(ctx)
	if err != nil {
		return nil, err
	}
	e.pruned = map[backupID]bool{}
	for _, name := range names {
		t, id, err := repository.ParsePrunedName(name)
		if err != nil {
			return nil, err
		}
		e.pruned[backupID{t, id}] = true
	}
	return e.pruned, nil
}

// noteIncomplete notes what is there of backups without a manifest: of all, or of
// those that would be newer than the newest one, by the times in their IDs.
func (e *examination) noteIncomplete(ctx context.Context) error {
	begun := slices.DeleteFunc(slices.Clone(e.catalog.Incomplete), func(f repository.Full) bool {
		older := func(m *snapshot.Manifest) bool { return f.Timeline == m.Timeline && f.ID > m.ID }
		return !e.all && (e.Backup != Latest || !slices.ContainsFunc(e.backups, older))
	})
	if len(begun) == 0 {
		return nil
	}
	pruned, err := e.prunedBackups(ctx)
	if err != nil {
		return e.failed(ctx, prunedObject, err)
	}
	for _, full := range begun {
		var bytes int64
		for _, o := range full.Objects {
			bytes += o.Size
		}
		name := fullName(full.Timeline, full.ID)
		if pruned[backupID{full.Timeline, full.ID}] {
			e.note("%s was pruned, and its object is still there (%d bytes): the pruning was interrupted, or runs now", name, bytes)
			continue
		}
		e.note("%s has no manifest (%d bytes): what an interrupted backup left, or one that runs now", name, bytes)
	}
	return nil
}

// errPruned says that a backup was pruned since it was listed.
var errPruned = errors.New("it was pruned meanwhile")

// prunedMeanwhile reports whether an error is due to a backup that was pruned since
// its manifest was read: the manifest goes before the object. One whose manifest is
// still there has lost its object.
func (e *examination) prunedMeanwhile(ctx context.Context, t repository.TimelineID, id string, err error) bool {
	if !errors.Is(err, sinks.ErrNotFound) {
		return false
	}
	_, err = snapshot.ReadManifest(ctx, e.repo, t, id)
	return errors.Is(err, sinks.ErrNotFound)
}

// isPrunedName reports whether a name is that of such a record.
func isPrunedName(name string) bool {
	_, _, err := repository.ParsePrunedName(name)
	return err == nil
}

// prunedLogTo is the index up to which a record says that the log was pruned; 0 where
// none does. One that is not whole, or belongs elsewhere, says nothing. Log behind
// the newest full snapshot is never pruned while the timeline goes on, so no
// record excuses that it is missing.
func (l *logCheck) prunedLogTo(ctx context.Context) (uint64, error) {
	names, err := l.repo.PrunedLogs(ctx, l.part.timeline)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		record, err := l.repo.ReadPrunedLog(ctx, name)
		switch {
		case errors.Is(err, repository.ErrAltered), errors.Is(err, sinks.ErrNotFound): // checkDocuments reports it
			continue
		case err != nil:
			return 0, err
		}
		switch _, ended, err := l.repo.Superseded(ctx, l.part.timeline); {
		case err != nil && !errors.Is(err, repository.ErrAltered):
			return 0, err
		case ended:
			return record.Index, nil
		}
		var newest uint64
		for _, m := range l.bases() {
			newest = max(newest, m.Facts.RaftIndex)
		}
		return min(record.Index, newest), nil
	}
	return 0, nil
}

func isPinName(name string) bool {
	_, _, err := repository.ParsePinName(name)
	return err == nil
}

func isPrunedLogName(name string) bool {
	_, _, err := repository.ParsePrunedLogName(name)
	return err == nil
}
