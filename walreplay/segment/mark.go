package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Alive is a mark that is an object of its own. It tells a quiet cluster from
// a dead archiver.
type Alive struct {
	Format   int                   `json:"format"`
	Timeline repository.TimelineID `json:"timeline"`
	raftlog.Mark
	Stamp *Stamp `json:"stamp,omitempty"`
}

// Stamp is a live HashKV: the cheapest proof that a replay is what the cluster
// served. It is of the key space from CompactedRevision to HashRevision; at
// which raft index, it does not tell.
type Stamp struct {
	Hash              uint32 `json:"hash"`
	HashRevision      int64  `json:"hash_revision"`
	CompactedRevision int64  `json:"compacted_revision"`
}

const markFormat = 1

// WriteMark stores an alive mark, with a stamp where there is one. One that is
// stored already stays as it is, and is no error: its name holds all that
// counts.
func WriteMark(ctx context.Context, repo *repository.Repository, t repository.TimelineID, m raftlog.Mark, stamp *Stamp) error {
	m.Time = m.Time.UTC().Round(0)
	a := Alive{markFormat, t, m, stamp}
	return putDocument(ctx, repo, a.name().String(), a)
}

func (a Alive) name() repository.MarkName {
	return repository.MarkName{Timeline: a.Timeline, Index: a.Index, Time: a.Time, Member: a.Member}
}

// ReadMark reads one alive mark. One that was altered or moved is a
// *snapshot.DamagedError.
func ReadMark(ctx context.Context, repo *repository.Repository, n repository.MarkName) (Alive, error) {
	var a Alive
	if err := readDocument(ctx, repo, n.String(), &a); err != nil {
		return Alive{}, err
	}
	if a.Format != markFormat {
		return Alive{}, newerDocument(repo, n.String(), a.Format, markFormat)
	}
	if a.name().String() != n.String() {
		return Alive{}, damaged(repo.Sink(), n.String(), -1, fmt.Errorf("it is the mark %s: it was moved or copied here", a.name()))
	}
	return a, nil
}

// ReadMarks reads the alive marks of a timeline, ordered by index, then time.
// A damaged one comes with its *snapshot.DamagedError, and the next ones
// after it; any other error is the last. One that is deleted meanwhile is left
// out.
func ReadMarks(ctx context.Context, repo *repository.Repository, t repository.TimelineID) iter.Seq2[Alive, error] {
	return func(yield func(Alive, error) bool) {
		names, err := repo.Marks(ctx, t)
		if err != nil {
			yield(Alive{}, err)
			return
		}
		readMarks(ctx, repo, names)(yield)
	}
}

// readMarks reads many marks, some at once.
func readMarks(ctx context.Context, repo *repository.Repository, names []repository.MarkName) iter.Seq2[Alive, error] {
	return func(yield func(Alive, error) bool) {
		for len(names) > 0 {
			n := min(parallelSmall, len(names))
			marks, errs := make([]Alive, n), make([]error, n)
			var group errgroup.Group
			for i, name := range names[:n] {
				group.Go(func() error {
					marks[i], errs[i] = ReadMark(ctx, repo, name)
					return nil
				})
			}
			_ = group.Wait() // each has its own error
			names = names[n:]
			for i := range marks {
				switch {
				case errors.Is(errs[i], sinks.ErrNotFound):
				case errs[i] != nil && !isDamage(errs[i]):
					yield(Alive{}, errs[i])
					return
				case !yield(marks[i], errs[i]):
					return
				}
			}
		}
	}
}
