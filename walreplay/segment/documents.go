package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// putDocument stores a small document that need not be locked: there are many,
// and they are pruned with the segments. One that is there already stays.
func putDocument(ctx context.Context, repo *repository.Repository, name string, v any) error {
	err := repo.WriteUnlocked(ctx, name, v)
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

// GapRecord says that entries are in nobody's log any more, and why.
type GapRecord struct {
	Format   int                   `json:"format"`
	Timeline repository.TimelineID `json:"timeline"`
	First    uint64                `json:"first_index"` // the first entry that is missing
	Last     uint64                `json:"last_index"`  // the last one
	Reason   string                `json:"reason"`
	Member   snapshot.ID           `json:"member_id"` // whose archiver found it
	Created  time.Time             `json:"created"`   // by that one's clock
}

const gapFormat = 1

func (g GapRecord) name() repository.GapName {
	return repository.GapName{Timeline: g.Timeline, First: g.First, Last: g.Last}
}

// WriteGap records a gap. One that is recorded already stays as it is, and is
// no error.
func WriteGap(ctx context.Context, repo *repository.Repository, g GapRecord) error {
	if g.First < 1 || g.Last < g.First {
		return fmt.Errorf("record a gap of timeline %s: from index %d to %d there is none", g.Timeline, g.First, g.Last)
	}
	g.Format = gapFormat
	g.Created = g.Created.UTC().Round(0)
	return putDocument(ctx, repo, g.name().String(), g)
}

// ReadGap reads one record. One that was altered or moved is a
// *snapshot.DamagedError.
func ReadGap(ctx context.Context, repo *repository.Repository, n repository.GapName) (GapRecord, error) {
	var g GapRecord
	if err := readDocument(ctx, repo, n.String(), &g); err != nil {
		return GapRecord{}, err
	}
	if g.Format != gapFormat {
		return GapRecord{}, newerDocument(repo, n.String(), g.Format, gapFormat)
	}
	if g.name() != n {
		return GapRecord{}, damaged(repo.Sink(), n.String(), -1, fmt.Errorf("it is the record %s: it was moved or copied here", g.name()))
	}
	return g, nil
}
