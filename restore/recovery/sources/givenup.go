package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/walreplay"
)

// countLimit bounds the reading of what is given up: it is shown before a question that
// somebody in a hurry answers.
const countLimit = 30 * time.Second

// GivenUp counts the writes that a plan leaves out: those after a point in the past, or
// behind the end of what was chosen. It reads the log of the same history that reaches
// furthest, of those in the places and the repositories of r. Nil if none reaches further
// than the plan. An error comes with what was counted until then: nothing if only a replay,
// too long for a plan, finds the point (before a key).
func (p *Plan) GivenUp(ctx context.Context, f *Findings, r RebuildRequest) (up *walreplay.GivenUp, err error) {
	c := p.Candidate(p.Chosen)
	switch {
	case c == nil || c.Source == nil || c.History == 0:
		return nil, nil
	case r.Target.Searches():
		return nil, fmt.Errorf("only the rebuild finds %s; its report has the number", r.Target)
	}
	furthest := f.furthest(&p.Histories[c.History-1], &r)
	inThePast := r.Target.Kind == walreplay.AtTime || r.Target.Kind == walreplay.AtRevision
	if !inThePast && furthest.Last <= c.Source.Index || furthest.Owner == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	r.Source = Source{Log: []Piece{furthest}}
	pieces := newPieces(&r)
	defer func() { err = errors.Join(err, pieces.close()) }()
	history, err := pieces.log(ctx, furthest.Owner)
	if err != nil {
		return nil, err
	}
	index := c.Source.Index
	if inThePast {
		point, err := history.Resolve(ctx, r.Target, "", walreplay.Options{})
		if err != nil {
			return nil, err
		}
		index = point.Last
	}
	return history.GivenUp(ctx, index)
}

// furthest is the end of the log of a history that reaches furthest, of those that are at
// hand; of two that of an archive, which holds only committed entries.
func (f *Findings) furthest(h *History, r *RebuildRequest) (end Piece) {
	add := func(owner string, first, last uint64) {
		if last > end.Last {
			end = Piece{Owner: owner, First: first, Last: last}
		}
	}
	for _, a := range f.Archives {
		if n := len(a.Log); n > 0 && slices.Contains(h.Timelines, a.Timeline) {
			add(a.Name, a.Log[n-1].First, a.Log[n-1].Last)
		}
	}
	for _, m := range f.Survivors {
		if _, here := r.Places[m.Name]; here && m.Log != nil && slices.Contains(h.Survivors, m.Name) {
			add(m.Name, m.Log.FirstIndex, m.Log.LastIndex)
		}
	}
	return end
}
