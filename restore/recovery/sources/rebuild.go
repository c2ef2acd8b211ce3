// Rebuild makes the database of a Source: it puts together what
// lies here of survivors and repositories, and replays it.
//
// It promises:
//
//  1. What is rebuilt is the state after the source's last entry, or before it
//     where a target says so, and never beyond it.
//  2. What the plan found is found again: a database of another index or term, a
//     log that lacks an entry, and pieces that do not hold the same entry where
//     they meet, are errors.
//  3. Survivors' files are opened for reading only. What is written goes to a
//     scratch folder, which the result's Close removes.
//  4. Memory does not grow with the length of a log.

package sources

import (
	"context"
	"errors"
	"fmt"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// Directories is where an owner's data lies, seen from here.
type Directories struct {
	// DataDir holds member/snap and, unless WALDir names another folder,
	// member/wal. What a source does not need of them need not be there: see Needed.
	DataDir string
	WALDir  string
}

// RebuildRequest says what to rebuild, and out of what.
type RebuildRequest struct {
	Source Source
	// Target is the point; the zero value is the source's last entry. No target
	// lies beyond that.
	Target walreplay.Target
	Places map[string]Directories // of survivors, by owner
	// Repositories are where the archived pieces are looked for: in the one that the
	// source names, and in those that have the timeline.
	Repositories []*repository.Repository
	Identities   []age.Identity // for encrypted objects
	Replay       walreplay.Options
}

// Rebuild rebuilds the database. The caller closes it.
//
// What does not fit together is a *walreplay.JoinError, sources that changed since the
// plan are an *OtherError, a target that the source does not cover a
// *walreplay.NotCoveredError, and damage as walreplay.History.Rebuild has it. The
// Recipe is nil where a full snapshot is the state itself.
func Rebuild(ctx context.Context, r RebuildRequest) (_ *walreplay.Rebuilt, err error) {
	if r.Replay.ScratchDir == "" {
		return nil, errors.New("a rebuild needs a folder for its scratch files")
	}
	p := newPieces(&r)
	// What is rebuilt is a file of its own, or a stored object.
	defer func() { err = errors.Join(err, p.close()) }()
	history, err := p.join(ctx)
	if err != nil {
		return nil, err
	}
	point, err := history.Resolve(ctx, r.Target, "", r.Replay)
	if err != nil {
		return nil, err
	}
	out, err := history.Rebuild(ctx, point, r.Replay)
	if err != nil {
		return nil, err
	}
	if err := checkEnd(&r.Source, history.Name, out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// checkEnd holds the end of what was rebuilt against the plan's.
func checkEnd(s *Source, name string, out *walreplay.Rebuilt) error {
	if c := out.Recipe; c != nil && c.Index == s.Index && s.Term != 0 && c.Term != 0 && c.Term != s.Term {
		return &OtherError{Object: name, What: "the term of its last entry", Got: c.Term, Want: s.Term}
	}
	return nil
}

// OtherError says that something is not what the plan was made from.
type OtherError struct {
	Object string
	What   string // that differs
	Got    any
	Want   any // what the plan has
}

func (e *OtherError) Error() string {
	return fmt.Sprintf("%s is not what the plan was made from: %s is %v, not %v; make the plan anew, or put back what it was made from", e.Object, e.What, e.Got, e.Want)
}
