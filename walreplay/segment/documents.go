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

// putDocument stores a small document. One that is there already stays.
func putDocument(ctx context.Context, repo *repository.Repository, name string, v any) error {
	err := repo.WriteDocument(ctx, name, v)
	if errors.Is(err, sinks.ErrExists) {
		return nil
	}
	return err
}

// readDocument is repository.Read; a document that was altered or moved is a
// *snapshot.DamagedError.
func readDocument[T any](ctx context.Context, repo *repository.Repository, name string, of func(T) (format int, calledSo bool, about string)) (T, error) {
	v, err := repository.Read(ctx, repo, name, of)
	if errors.Is(err, repository.ErrAltered) {
		err = damaged(repo, name, -1, err)
	}
	return v, err
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

func (g GapRecord) name() repository.GapName {
	return repository.GapName{Timeline: g.Timeline, First: g.First, Last: g.Last}
}

// WriteGap records a gap. One that is recorded already stays as it is, and is
// no error.
func WriteGap(ctx context.Context, repo *repository.Repository, g GapRecord) error {
	if g.First < 1 || g.Last < g.First {
		return fmt.Errorf("record a gap of timeline %s: from index %d to %d there is none", g.Timeline, g.First, g.Last)
	}
	g.Format = repository.Format
	g.Created = g.Created.UTC().Round(0)
	return putDocument(ctx, repo, g.name().String(), g)
}

// ReadGap reads one record. One that was altered or moved is a
// *snapshot.DamagedError.
func ReadGap(ctx context.Context, repo *repository.Repository, n repository.GapName) (GapRecord, error) {
	return readDocument(ctx, repo, n.String(), func(g GapRecord) (int, bool, string) {
		return g.Format, g.name() == n, "the record " + g.name().String()
	})
}
