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
	"io"
	"path/filepath"
	"slices"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
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

// Outcome is the result of a replay from one owner's database.
type Outcome struct {
	Owner  string `json:"owner"`  // of the database
	Source string `json:"source"` // what DecideRequest.Source takes for this way
	// Checksummed: every byte that it was made from had a checksum, as those of a
	// backup and of logs have, and those of a member's database have not.
	Checksummed bool            `json:"checksummed"`
	Index       uint64          `json:"raft_index"`
	Revision    int64           `json:"revision"`
	HashKV      snapshot.HashKV `json:"hashkv"`
}

// outcomeOf is that of an image. That of a backup which is the state itself may have
// no hash yet: it is read then, by way of a scratch file.
func outcomeOf(ctx context.Context, owner, source string, image *walreplay.Rebuilt, scratch string) (Outcome, error) {
	o := Outcome{Owner: owner, Source: source, Checksummed: image.HasHash()}
	if c := image.Recipe; c != nil {
		o.Index, o.Revision, o.HashKV = c.Index, c.Revision, c.HashKV
		return o, nil
	}
	facts, err := image.Facts(ctx)
	if err != nil {
		return o, err
	}
	o.Index, o.Revision = facts.RaftIndex, facts.Revision
	if m := image.Base.Manifest; m != nil && m.HashKV.Revision == facts.Revision {
		o.HashKV = m.HashKV
		return o, nil
	}
	o.HashKV, err = hashOf(ctx, image, scratch)
	return o, err
}

func hashOf(ctx context.Context, image *walreplay.Rebuilt, dir string) (_ snapshot.HashKV, err error) {
	var none snapshot.HashKV
	scratch, err := walreplay.NewScratchFolder(dir)
	if err != nil {
		return none, err
	}
	defer func() {
		if e := scratch.Remove(); e != nil {
			err = errors.Join(err, &leftError{e})
		}
	}()
	if err := scratch.Needs(image.Size()); err != nil {
		return none, err
	}
	r, err := image.Open(ctx)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := safedir.Create(filepath.Join(scratch.Path(), "db"))
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := io.Copy(f, r)
	if err != nil {
		return none, fmt.Errorf("copy %s: %w", image.Name(), err)
	}
	return snapshot.ReadHashKV(ctx, f, size)
}

// Same reports whether two replays came to the same keys.
func (o Outcome) Same(p Outcome) bool {
	return o.Index == p.Index && o.Revision == p.Revision && o.HashKV.Hash == p.HashKV.Hash &&
		o.HashKV.Revision == p.HashKV.Revision && o.HashKV.CompactedRevision == p.HashKV.CompactedRevision
}

// Judge distinguishes the outcomes that agree, and that are to be trusted, from the odd
// ones. They are those of the most databases, or those of the only one that has
// checksums, if there is one such group; both are empty where nothing shows it, and
// odd is where all are the same.
func Judge(all []Outcome) (agree, odd []Outcome) {
	var groups [][]Outcome
	for _, o := range all {
		i := slices.IndexFunc(groups, func(g []Outcome) bool { return g[0].Same(o) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], o)
	}
	if len(groups) < 2 {
		return all, nil
	}
	best := only(groups, func(g []Outcome) bool {
		return len(g) == len(slices.MaxFunc(groups, func(a, b []Outcome) int { return len(a) - len(b) }))
	})
	if best < 0 {
		best = only(groups, func(g []Outcome) bool { return slices.ContainsFunc(g, func(o Outcome) bool { return o.Checksummed }) })
	}
	if best < 0 {
		return nil, nil
	}
	agree = groups[best]
	return agree, slices.Concat(slices.Delete(groups, best, best+1)...)
}

// only is the place of the one group of which something holds; -1 where it holds
// of none, or of several.
func only(groups [][]Outcome, holds func([]Outcome) bool) int {
	found := -1
	for i, g := range groups {
		if !holds(g) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
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
