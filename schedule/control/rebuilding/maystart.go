package rebuilding

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// mayStart asks the repositories whether a cluster was superseded: it was where one
// of them has timelines of it, and all of these have ended. One that cannot be asked
// in time is a warning: a repository that is away must not keep a cluster down.
func (b *Builder) mayStart(ctx context.Context, cluster snapshot.ID, takenBack []snapshot.ID) (warnings []string, err error) {
	type answer struct {
		url   string
		ended *repository.Superseded
		err   error
	}
	asking, cancel := context.WithTimeoutCause(ctx, b.askFor, fmt.Errorf("it gave no answer in %v", b.askFor))
	defer cancel()
	answers := make(chan answer, len(b.config.Repositories))
	for i, url := range b.config.Repositories {
		go func() {
			ended, err := supersededIn(asking, url, cluster, takenBack)
			answers <- answer{fmt.Sprintf("repositories[%d]", i), ended, err}
		}()
	}
	waiting := len(b.config.Repositories)
	unasked := func(key string, err error) {
		warnings = append(warnings, fmt.Sprintf("whether the member's timeline was superseded could not be asked of %s: %v: make sure that no newer cluster took its place", key, err))
	}
	for ; waiting > 0; waiting-- {
		select {
		case a := <-answers:
			if a.err != nil {
				unasked(a.url, a.err)
			} else if a.ended != nil {
				err = errors.Join(err, refusal(cluster, a.ended))
			}
		case <-asking.Done(): // a folder of a dead mount hears of no deadline
			unasked(fmt.Sprintf("%d of the repositories", waiting), context.Cause(asking))
			return warnings, err
		}
	}
	return warnings, err
}

func refusal(cluster snapshot.ID, ended *repository.Superseded) error {
	return fmt.Errorf("the data is of cluster %s, whose timeline %s was superseded by %s (%s): start the members of the newer cluster, or undo that recovery to go back to this one",
		cluster, ended.Timeline, ended.By, ended.Reason)
}

// supersededIn is the mark that ended the newest timeline of a cluster, where all of
// them have ended; nil where one lives, or none is known.
func supersededIn(ctx context.Context, url string, cluster snapshot.ID, takenBack []snapshot.ID) (_ *repository.Superseded, err error) {
	repo, err := open(ctx, url, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, repo.meter.Close()) }()
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	var newest *repository.Superseded
	for _, id := range ids {
		if snapshot.ID(id.ClusterID) != cluster {
			continue
		}
		ended, is, err := repo.Superseded(ctx, id)
		switch {
		case errors.Is(err, repository.ErrAltered):
			// In doubt it has ended, and the damage is the reason.
			ended = repository.Superseded{Timeline: id, Reason: err.Error()}
		case err != nil:
			return nil, err
		case !is, slices.Contains(takenBack, snapshot.ID(ended.By.ClusterID)):
			return nil, nil
		}
		newest = &ended
	}
	return newest, nil
}
