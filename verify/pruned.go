package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// prunedObject is what reports call the records of pruned backups.
const prunedObject = "pruned"

// prunedBackups are those of which a record says that they were let go, whatever
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

// checkPruned reads all records of pruned backups.
func (e *examination) checkPruned(ctx context.Context) error {
	names, err := e.repo.PrunedNames(ctx)
	if err != nil {
		return e.failed(ctx, prunedObject, err)
	}
	if len(names) == 0 {
		return nil
	}
	_, err = e.check(ctx, report.Checksum, prunedObject, func(c *report.Check) error {
		c.Compared = fmt.Sprintf("%d records of pruned backups with their own SHA-256 and place", len(names))
		for _, name := range names {
			_, err := e.repo.ReadPruned(ctx, name)
			switch {
			case errors.Is(err, sinks.ErrNotFound): // no verdict names the backup any more
			case errors.Is(err, repository.ErrAltered):
				found(c, report.Finding{Kind: report.KindMark, Object: name, Text: err.Error()})
			case err != nil:
				unchecked(c, err)
			}
		}
		return nil
	})
	return err
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

// prunedMeanwhile tells whether an error is due to a backup that was pruned since
// its manifest was read: the manifest goes before the object. One whose manifest is
// still there has lost its object.
func (e *examination) prunedMeanwhile(ctx context.Context, t repository.TimelineID, id string, err error) bool {
	if !errors.Is(err, sinks.ErrNotFound) {
		return false
	}
	_, err = snapshot.ReadManifest(ctx, e.repo, t, id)
	return errors.Is(err, sinks.ErrNotFound)
}

// isPrunedName tells the name of such a record.
func isPrunedName(name string) bool {
	_, _, err := repository.ParsePrunedName(name)
	return err == nil
}
