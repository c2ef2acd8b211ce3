package restore

import (
	"fmt"
	"math"

	"github.com/requorum/requorum/snapshot"
)

// DefaultBump is added to the highest known revision when a restore goes back.
// Clients may have seen revisions that no backup and no log reached; a cluster
// at 10,000 writes a second needs 27 hours to use this many.
const DefaultBump = 1_000_000_000

// BumpMode says how the revision of the new cluster is chosen.
type BumpMode string

const (
	// BumpAuto goes DefaultBump beyond the highest known revision.
	BumpAuto BumpMode = ""
	// BumpBy adds BumpRequest.Amount to the image's revision.
	BumpBy BumpMode = "by"
	// BumpOff keeps the image's revision. It is right only when no client saw a
	// later one, and refused where a later one is known.
	BumpOff BumpMode = "off"
	// BumpNone keeps the image's revision, which is known to be the last that any
	// client saw: a recovery that lost nothing.
	BumpNone BumpMode = "none"
)

// BumpRequest asks for a bump of the revision.
type BumpRequest struct {
	Mode   BumpMode `json:"mode,omitempty"`
	Amount int64    `json:"amount,omitempty"` // for BumpBy
}

func (b BumpRequest) check() error {
	switch {
	case b.Mode != BumpAuto && b.Mode != BumpBy && b.Mode != BumpOff && b.Mode != BumpNone:
		return fmt.Errorf("restore: unknown bump mode %q", b.Mode)
	case b.Mode == BumpBy && b.Amount <= 0:
		return fmt.Errorf("restore: a revision bump of %d: want a positive amount, or none at all", b.Amount)
	case b.Mode != BumpBy && b.Amount != 0:
		return fmt.Errorf("restore: a revision bump of %d was given without asking for it", b.Amount)
	}
	return nil
}

// Bump is how the revision rises, and why. All revisions up to the new one are
// marked compacted: a watch or a list from the past ends with "compacted", and
// its client lists anew.
type Bump struct {
	// Mode is how it was asked for.
	Mode BumpMode `json:"mode,omitempty"`
	// From is the image's own revision, HighestKnown that of its lineage (0 if
	// unknown). NewRevision is From + Amount.
	From          int64  `json:"from"`
	HighestKnown  int64  `json:"highest_known,omitempty"`
	Amount        int64  `json:"amount"`
	NewRevision   int64  `json:"new_revision"`
	MarkCompacted bool   `json:"mark_compacted"`
	Reason        string `json:"reason"`
}

// planBump decides the bump, nil for none, and what the user should know of it.
func planBump(req BumpRequest, facts snapshot.Facts, highest int64) (*Bump, []string, error) {
	if req.Mode == BumpNone {
		return nil, nil, nil
	}
	if req.Mode == BumpOff && highest > facts.Revision {
		return nil, nil, badRequest("restore: the image's revision %d cannot be kept (--bump-revision off): its lineage is known to have reached %d, so clients that saw a later revision would keep watches that stay silent and caches that stay wrong: --bump-revision auto goes beyond it",
			facts.Revision, highest)
	}
	if req.Mode == BumpOff {
		note := "the revision is not bumped, as asked: clients that saw a revision after " +
			fmt.Sprint(facts.Revision) + " keep watches that stay silent and caches that stay wrong; restart all of them"
		return nil, []string{note}, nil
	}
	b := &Bump{Mode: req.Mode, From: facts.Revision, HighestKnown: highest, MarkCompacted: true}
	base := max(facts.Revision, highest)
	if req.Mode == BumpBy {
		b.Amount, b.Reason = req.Amount, "asked for by amount"
		base = facts.Revision
	} else {
		b.Amount = base - facts.Revision + DefaultBump
		b.Reason = "the restore goes back in time: clients may have seen revisions after " + fmt.Sprint(base)
	}
	if req.Mode == BumpBy && req.Amount <= highest-facts.Revision {
		return nil, nil, badRequest("restore: --bump-revision %d bumps revision %d to %d, and its lineage is known to have reached %d: clients would miss changes: give more than %d, or --bump-revision auto",
			req.Amount, facts.Revision, facts.Revision+req.Amount, highest, highest-facts.Revision)
	}
	if base > math.MaxInt64-max(b.Amount, DefaultBump) {
		return nil, nil, badRequest("restore: revision %d cannot be bumped by %d: it would overflow: give --bump-revision with a smaller amount", facts.Revision, b.Amount)
	}
	b.NewRevision = facts.Revision + b.Amount
	return b, nil, nil
}
