package walreplay

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
)

// Rebuild makes the database at a point that Resolve found, in o.ScratchDir. The
// caller closes the result.
//
// A revision that the log does not reach is a *NotCoveredError. Damage of the
// image is a *snapshot.DamagedError, of the log a *LogError that wraps one. What
// is not what a live member served, as far as o.Stamps asks for it, is a
// *snapshot.DamagedError that wraps a *StampError.
func (h *History) Rebuild(ctx context.Context, p *Point, o Options) (_ *Rebuilt, err error) {
	if p.AsIs {
		return &Rebuilt{Base: p.Base, image: p.Base.Image, name: p.Base.Image.Name(), facts: p.Base.Facts}, nil
	}
	r, err := h.replay(ctx, p.Base, PhaseReplay, o, engine.RunOptions{Last: p.Last, MaxRevision: p.MaxRevision})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.scratch.remove())
		}
	}()
	if p.MaxRevision > 0 && r.stopped.Revision < p.MaxRevision {
		return nil, h.notReached(p, Near{Index: r.stopped.Index, Revision: r.stopped.Revision})
	}
	out := &Rebuilt{Base: p.Base, scratch: r.scratch, Phases: r.times}
	if err := out.prove(ctx, h, p, r, o); err != nil {
		return nil, err
	}
	return out, nil
}

// prove reads the database that was rebuilt, and writes its recipe.
func (out *Rebuilt) prove(ctx context.Context, h *History, p *Point, r *replayed, o Options) error {
	o.progress(PhaseProve, 0, 0)
	path := r.scratch.database()
	file, err := snapshot.OpenFile(path)
	if err != nil {
		return err
	}
	if out.facts, err = file.Facts(ctx); err != nil {
		return fmt.Errorf("look into what was rebuilt: %w", err)
	}
	if out.facts.RaftIndex != r.stopped.Index || out.facts.Revision != r.stopped.Revision {
		return fmt.Errorf("the rebuilt database says raft index %d, revision %d, the replay said %d, %d: this is a mistake in requorum, please report it",
			out.facts.RaftIndex, out.facts.Revision, r.stopped.Index, r.stopped.Revision)
	}
	hash, err := hashOf(ctx, path, file.Size())
	if err != nil {
		return err
	}
	out.image = file
	out.name = fmt.Sprintf("%s and %d entries of the log to raft index %d", p.Base.Name, r.entries, r.stopped.Index)
	if out.Stamps, err = h.compareStamps(ctx, p, path, r.stopped.Index, hash, o); err != nil {
		var other *StampError
		if errors.As(err, &other) {
			err = &snapshot.DamagedError{Object: out.name, Offset: -1, Err: err}
		}
		return err
	}
	c := &Recipe{
		Base: p.Base.ID, Timeline: h.Timeline, BaseIndex: p.Base.Index(),
		Index: r.stopped.Index, Term: r.stopped.Term, Entries: r.entries, Revision: r.stopped.Revision,
		Replayed: r.sum, HashKV: hash, MinLeaseTTL: o.minLeaseTTL(), PersistCheckpoints: o.PersistCheckpoints, SourceVersion: o.sourceVersion(p.Base),
	}
	if c.Time, err = h.about(ctx, c.Index); err != nil {
		return fmt.Errorf("find out when entry %d was written: %w", c.Index, err)
	}
	if h.member != nil {
		h.member.complete(c, p.Base, out.facts)
	}
	if j, ok := h.log.(*joined); ok {
		j.complete(c)
	}
	if h.chainAt != nil {
		sum, err := h.chainAt(ctx, c.Index)
		if err != nil && !errors.Is(err, errNoChain) {
			return err
		}
		if err == nil {
			c.Chain = &sum
		}
	}
	out.Recipe = c
	return nil
}

func hashOf(ctx context.Context, path string, size int64) (_ snapshot.HashKV, err error) {
	f, err := os.Open(path)
	if err != nil {
		return snapshot.HashKV{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return snapshot.ReadHashKV(ctx, f, size)
}

// Repeat does what a recipe says, and checks that the same came out. For a
// recipe of a data directory h is that directory's history, wherever it is now,
// and for one of a joined history h is the same parts, joined again.
func (h *History) Repeat(ctx context.Context, recipe *Recipe, o Options) (*Rebuilt, error) {
	if err := h.repeats(recipe); err != nil {
		return nil, err
	}
	id := recipe.Base
	if id == "" {
		id = recipe.Image
	}
	base, err := h.base(id)
	if err != nil {
		return nil, err
	}
	p := &Point{Target: Target{Kind: AtIndex, Index: recipe.Index}, Base: base, Last: recipe.Index}
	if err := h.resolveIndex(p); err != nil {
		return nil, err
	}
	if err := h.complete(ctx, p); err != nil {
		return nil, err
	}
	o.MinLeaseTTL, o.PersistCheckpoints, o.SourceVersion = recipe.MinLeaseTTL, recipe.PersistCheckpoints, recipe.SourceVersion
	r, err := h.Rebuild(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if r.Recipe == nil {
		err = &OtherStateError{"the number of replayed entries", uint64(0), recipe.Entries}
	} else {
		err = r.Recipe.Check(recipe)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
