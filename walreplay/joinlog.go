package walreplay

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// joined is several logs as one: each entry is read from the part that has it.
type joined struct {
	name  string
	base  *Base
	parts []Part
}

// stretches are one, or none where the image is all there is.
func (j *joined) stretches() []stretch {
	if len(j.parts) == 0 {
		return nil
	}
	all := stretch{First: j.parts[0].First, Last: j.parts[len(j.parts)-1].Last}
	for _, p := range j.parts {
		for _, s := range p.History.log.stretches() {
			if s.Last > p.Last {
				continue // what it knows may be of behind the part
			}
			all.Revision = max(all.Revision, s.Revision)
			if s.Last == all.Last {
				all.Until = s.Until
			}
		}
	}
	return []stretch{all}
}

func (j *joined) entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		next := first
		for _, p := range j.parts {
			end := min(p.Last, last)
			if end < next {
				continue
			}
			for e, err := range p.History.log.entries(ctx, next, end) {
				if !yield(e, err) || err != nil {
					return
				}
				next = e.Index + 1
			}
			if next != end+1 {
				yield(raftlog.Entry{}, fmt.Errorf("the log of %s ended before raft index %d, and it had held the entries up to %d: it was changed meanwhile", p.owner(), next, end))
				return
			}
		}
	}
}

func (j *joined) size(first, last uint64) int64 {
	var sum int64
	for _, p := range j.parts {
		if from, to := max(p.First, first), min(p.Last, last); from <= to {
			sum += p.History.log.size(from, to)
		}
	}
	return sum
}

func (j *joined) encrypted(first, last uint64) bool {
	return slices.ContainsFunc(j.parts, func(p Part) bool {
		from, to := max(p.First, first), min(p.Last, last)
		return from <= to && p.History.Encrypted(from, to)
	})
}

// chain is that of the archive whose part holds the index.
func (j *joined) chain(ctx context.Context, index uint64) (raftlog.Sum, error) {
	for _, p := range j.parts {
		if p.First <= index && index <= p.Last && p.History.chainAt != nil {
			return p.History.chainAt(ctx, index)
		}
	}
	return raftlog.Sum{}, errNoChain
}

// complete adds to a recipe what it was put together from.
func (j *joined) complete(c *Recipe) {
	c.Parts = j.recipe(c.Index)
	if j.base.Manifest == nil {
		c.Image, c.Base = j.base.ID, ""
	}
}

// recipe are the parts as far as they lead to an index.
func (j *joined) recipe(index uint64) []RecipePart {
	var all []RecipePart
	for _, p := range j.parts {
		if p.First <= index {
			all = append(all, RecipePart{Owner: p.owner(), First: p.First, Last: min(p.Last, index)})
		}
	}
	return all
}

// repeats tells whether a recipe is one of this history.
func (h *History) repeats(recipe *Recipe) error {
	j, ok := h.log.(*joined)
	switch {
	case !ok && len(recipe.Parts) > 0:
		return fmt.Errorf("what the plan has was put together from %d logs, and %s is one: put the same ones together again", len(recipe.Parts), h.Name)
	case ok && !slices.Equal(j.recipe(recipe.Index), recipe.Parts):
		return fmt.Errorf("what the plan has was put together from other parts than %s: %v and not %v", h.Name, recipe.Parts, j.recipe(recipe.Index))
	}
	return nil
}
