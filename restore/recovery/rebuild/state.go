package rebuild

import (
	"context"
	"errors"

	"filippo.io/age"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// Place is where an owner's data lies, seen from here.
type Place struct {
	// DataDir holds member/snap and, unless WALDir names another folder,
	// member/wal. What a source does not need of them need not be there: see Needed.
	DataDir string
	WALDir  string
}

// Request says what to rebuild, and out of what.
type Request struct {
	Source recovery.Source
	// Target is the point; the zero value is the source's last entry. No target
	// lies beyond that.
	Target walreplay.Target
	Places map[string]Place // of survivors, by owner
	// Repositories are where the archived pieces are looked for: in the one that the
	// source names, and in those that have the timeline.
	Repositories []*repository.Repository
	Identities   []age.Identity // for encrypted objects
	// ScratchDir is where the database is made; Replay.ScratchDir counts for nothing.
	ScratchDir string
	Replay     walreplay.Options
}

// State rebuilds the database. The caller closes it.
//
// What does not fit together is a *walreplay.JoinError, what is not what the plan
// was made from an *OtherError, a target that the source does not cover a
// *walreplay.NotCoveredError, and damage as walreplay.History.Rebuild has it. The
// Recipe is nil where a full snapshot is the state itself.
func State(ctx context.Context, r Request) (_ *walreplay.Rebuilt, err error) {
	s, err := Open(ctx, r)
	if err != nil {
		return nil, err
	}
	// What is rebuilt is a file of its own, or a stored object.
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	return s.Rebuild(ctx, p)
}

// Opened is a source that was put together, to look for its point and to rebuild
// it.
type Opened struct {
	// History is what was put together: it ends with the source's last entry.
	History *walreplay.History

	request Request
	pieces  *pieces
}

// Open finds the pieces and puts them together. It goes through each survivor's
// log once. The caller closes the result; what was rebuilt outlives it.
func Open(ctx context.Context, r Request) (_ *Opened, err error) {
	if r.ScratchDir == "" {
		return nil, errors.New("a rebuild needs a folder for its scratch files")
	}
	r.Replay.ScratchDir = r.ScratchDir
	o := &Opened{request: r, pieces: &pieces{request: &r, members: map[string]*walreplay.History{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	o.History, err = o.pieces.join(ctx)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Resolve finds the point of the request's target.
func (o *Opened) Resolve(ctx context.Context) (*walreplay.Point, error) {
	return o.History.Resolve(ctx, o.request.Target, "", o.request.Replay)
}

// Rebuild makes the database at a point. The caller closes it.
func (o *Opened) Rebuild(ctx context.Context, p *walreplay.Point) (*walreplay.Rebuilt, error) {
	out, err := o.History.Rebuild(ctx, p, o.request.Replay)
	if err != nil {
		return nil, err
	}
	if err := o.checkEnd(out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// checkEnd holds the end of what was rebuilt against the plan's.
func (o *Opened) checkEnd(out *walreplay.Rebuilt) error {
	s := &o.request.Source
	if c := out.Recipe; c != nil && c.Index == s.Index && s.Term != 0 && c.Term != 0 && c.Term != s.Term {
		return &OtherError{Object: o.History.Name, What: "the term of its last entry", Got: c.Term, Want: s.Term}
	}
	return nil
}

// Close closes what was opened, and leaves what was rebuilt.
func (o *Opened) Close() error { return o.pieces.close() }
