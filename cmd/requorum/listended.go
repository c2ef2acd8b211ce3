package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// readEnded finds out which timelines have ended, and by what. What it returns is
// of use also with an error.
func readEnded(ctx context.Context, r *repository.Repository, timelines []repository.Timeline) ([]repository.Superseded, error) {
	ended := []repository.Superseded{}
	var failed []error
	for _, t := range timelines {
		s, is, err := r.Superseded(ctx, t.ID)
		switch {
		case errors.Is(err, repository.ErrAltered):
			failed = append(failed, &snapshot.DamagedError{Object: "the mark that ends timeline " + t.ID.String() + " in " + r.String(), Offset: -1, Err: err})
		case err != nil:
			return ended, err
		case is:
			ended = append(ended, s)
		}
	}
	return ended, errors.Join(failed...)
}

// howEnded says that a timeline ended; empty where it did not.
func howEnded(ended []repository.Superseded, t repository.TimelineID) string {
	for _, s := range ended {
		switch {
		case s.Timeline != t:
		case s.Undone:
			return fmt.Sprintf("the recovery that opened it was taken back on %s, and %s goes on: %s", when(s.Created), s.By, s.Reason)
		default:
			return fmt.Sprintf("superseded by %s on %s: %s", s.By, when(s.Created), s.Reason)
		}
	}
	return ""
}
