package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/walreplay"
)

// Comparison is what was rebuilt a second time, to know whether what was rebuilt
// first is right. Its JSON form is stable.
type Comparison struct {
	// Outcomes begin with that of the image. One alone was not compared: Why says
	// why not.
	Outcomes []Outcome `json:"outcomes"`
	// Agree are the owners of the databases that are to be trusted, and Odd of those
	// that are not. Where they differ and neither is said, nothing shows it.
	Agree []string `json:"agree,omitempty"`
	Odd   []string `json:"odd,omitempty"`
	// Failed are ways that could not be gone, and why.
	Failed []string `json:"failed,omitempty"`
	Why    string   `json:"why,omitempty"`
	// Took is how long the further replays took.
	Took time.Duration `json:"took_nanoseconds,omitempty"`
}

// Compare rebuilds the state of image once more, from other owners' databases: from one, and where that differs from further ones, until it is
// known which is right. nameOf is Plan.NameOf. One database more is in the scratch
// folder meanwhile, and removed at the end.
//
// A way that cannot be gone is in Failed; the error is ctx's, or a scratch folder's
// that could not be removed.
func Compare(ctx context.Context, r RebuildRequest, image *walreplay.Rebuilt, nameOf func(*Source) string) (*Comparison, error) {
	if !r.Source.Unguarded() {
		return &Comparison{Outcomes: []Outcome{{Owner: r.Source.Base.Owner, Source: nameOf(&r.Source), Checksummed: true}}, Why: "all that it was made from has checksums"}, nil
	}
	first, err := outcomeOf(ctx, r.Source.Base.Owner, nameOf(&r.Source), image, r.Replay.ScratchDir)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Outcomes: []Outcome{first}}
	ways := r.Source.Alternatives(first.Index)
	if len(ways) == 0 {
		c.Why = "there is no other database that leads there"
		return c, nil
	}
	index, began := first.Index, time.Now()
	defer func() { c.Took = time.Since(began) }()
	for _, way := range ways {
		if slices.ContainsFunc(c.Outcomes, func(o Outcome) bool { return o.Owner == way.Base.Owner }) {
			continue
		}
		o, err := again(ctx, r, way, index, nameOf(&way))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var left *leftError
		if errors.As(err, &left) {
			return nil, err
		}
		if err != nil {
			c.Failed = append(c.Failed, fmt.Sprintf("from the database of %s: %v", way.Base.Owner, err))
			continue
		}
		c.Outcomes = append(c.Outcomes, o)
		if agree, _ := Judge(c.Outcomes); len(agree) > 0 {
			break
		}
	}
	if len(c.Outcomes) == 1 {
		c.Why = "no other way could be gone: " + strings.Join(c.Failed, "; ")
		return c, nil
	}
	agree, odd := Judge(c.Outcomes)
	c.Agree, c.Odd = Owners(agree), Owners(odd)
	return c, nil
}

// Owners are those of some outcomes.
func Owners(outcomes []Outcome) (names []string) {
	for _, o := range outcomes {
		names = append(names, o.Owner)
	}
	return names
}

// Flags are what names outcomes to a recovery, each of them.
func Flags(outcomes []Outcome) string {
	var all []string
	for _, o := range outcomes {
		all = append(all, "--source "+o.Source)
	}
	return strings.Join(all, ", or ")
}

// leftError says that a scratch folder could not be removed.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// again rebuilds the state at an index by another way, and keeps what it came to.
func again(ctx context.Context, r RebuildRequest, way Source, index uint64, name string) (Outcome, error) {
	r.Source, r.Target = way, walreplay.Target{Kind: walreplay.AtIndex, Index: index}
	r.Replay.CheckpointHashes = walreplay.NoCheckpointHashes
	image, err := Rebuild(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	o, err := outcomeOf(ctx, way.Base.Owner, name, image, r.Replay.ScratchDir)
	if e := image.Close(); e != nil {
		err = errors.Join(err, &leftError{e})
	}
	return o, err
}

// Differ reports whether two of the outcomes do.
func (c *Comparison) Differ() bool {
	return slices.ContainsFunc(c.Outcomes, func(o Outcome) bool { return !o.Same(c.Outcomes[0]) })
}

// Trusted reports whether the image's outcome is among those that agree.
func (c *Comparison) Trusted() bool { return slices.Contains(c.Agree, c.Outcomes[0].Owner) }

// String says what came out.
func (c *Comparison) String() string {
	first := c.Outcomes[0]
	if len(c.Outcomes) == 1 {
		if first.Checksummed {
			return c.Why
		}
		return fmt.Sprintf("the database of %s has no checksums, and was compared with no other one: damage inside values would go unnoticed (%s)", first.Owner, c.Why)
	}
	if !c.Differ() {
		return fmt.Sprintf("rebuilt from the database of %s as well: the same (HashKV %d at revision %d)", strings.Join(Owners(c.Outcomes[1:]), " and "), first.HashKV.Hash, first.Revision)
	}
	return Differing(c.Outcomes)
}

// Differing says what outcomes came to that are not all the same, and which of them
// are to be trusted.
func Differing(all []Outcome) string {
	var parts []string
	for _, o := range all {
		parts = append(parts, fmt.Sprintf("from that of %s: HashKV %d at revision %d, compacted at %d", o.Owner, o.HashKV.Hash, o.Revision, o.HashKV.CompactedRevision))
	}
	text := "the same entries give different keys from these databases (" + strings.Join(parts, "; ") + ")"
	agree, odd := Judge(all)
	switch {
	case len(agree) == 0:
		return text + ": nothing shows which of them is damaged"
	case len(agree) == 1:
		return fmt.Sprintf("%s: that of %s has checksums, so the damaged one is that of %s", text, agree[0].Owner, strings.Join(Owners(odd), " and "))
	}
	return fmt.Sprintf("%s: those of %s agree, so the damaged one is that of %s", text, strings.Join(Owners(agree), " and "), strings.Join(Owners(odd), " and "))
}
