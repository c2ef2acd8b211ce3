package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// putDocument stores a small document that need not be locked: there are many,
// and they are pruned with the segments. One that is there already stays.
func putDocument(ctx context.Context, repo *repository.Repository, name string, v any) error {
	data, err := repository.Seal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = sinks.Put(ctx, repo.Sink(), name, data, sinks.CreateOptions{ContentType: "application/json"})
	if errors.Is(err, sinks.ErrExists) {
		return nil
	}
	return err
}

// readDocument reads a document into v; one that was altered is a
// *snapshot.DamagedError.
func readDocument(ctx context.Context, repo *repository.Repository, name string, v any) error {
	err := repo.ReadDocument(ctx, name, v)
	if errors.Is(err, repository.ErrAltered) {
		return damaged(repo.Sink(), name, -1, err)
	}
	return err
}

func newerDocument(repo *repository.Repository, name string, format, known int) error {
	return fmt.Errorf("%s in %s: %w: format %d; this one reads format %d", name, repo, snapshot.ErrNewerFormat, format, known)
}
