package snapshot

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
)

// freeAttempt is the number under which the object of this attempt is written:
// the attempt's own, or the next one that is free. What has a number already may
// be an earlier life of this attempt's, or a member's whose bytes did not do and
// which is locked. ErrTaken where the backup is there.
func (t *taking) freeAttempt(ctx context.Context, target *target, id string) (int, error) {
	attempt := max(t.Attempt, 1)
	if t.ID == "" {
		return attempt, nil // random: nobody else writes there
	}
	used, err := target.repo.Attempts(ctx, target.timeline.ID, id)
	if err != nil {
		return 0, err
	}
	if used.Complete {
		return 0, fmt.Errorf("backup %s in %s: %w", id, target.sink, ErrTaken)
	}
	for used.Has(attempt) {
		attempt++
	}
	return attempt, nil
}

// Taken is ErrTaken where a backup has a manifest, and nil where it has none: for
// a caller who is about to do much work for it. It proves nothing for later.
func Taken(ctx context.Context, repo *repository.Repository, timeline repository.TimelineID, id string) error {
	used, err := repo.Attempts(ctx, timeline, id)
	if err == nil && used.Complete {
		err = fmt.Errorf("backup %s in %s: %w", id, repo, ErrTaken)
	}
	return err
}
