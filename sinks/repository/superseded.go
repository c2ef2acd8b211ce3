package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
)

// Superseded says that a recovery ended a timeline: its cluster goes on in
// another one, and no member of it may serve again. It is written once.
type Superseded struct {
	Format   int        `json:"format"`
	Timeline TimelineID `json:"timeline"` // the one that ended
	By       TimelineID `json:"by"`       // the one that goes on
	At       uint64     `json:"at"`       // raft index of the last entry that is common to both; 0 where it is not known
	Reason   string     `json:"reason"`
	Created  time.Time  `json:"created"` // by the clock of the tool that wrote it
}

// SupersededName is the name of the document that ends a timeline.
func SupersededName(t TimelineID) string { return t.String() + "/superseded" + documentSuffix }

// Supersede ends timeline s.Timeline. Where it has ended already the error is
// sinks.ErrExists, and Superseded tells by which it was.
func (r *Repository) Supersede(ctx context.Context, s Superseded) error {
	if s.Timeline == s.By {
		return fmt.Errorf("timeline %s cannot be superseded by itself", s.By)
	}
	s.Format = Format
	return r.WriteDocument(ctx, SupersededName(s.Timeline), s)
}

// Superseded tells whether timeline t has ended, and by what. Damage is
// ErrAltered: in doubt the timeline has ended.
func (r *Repository) Superseded(ctx context.Context, t TimelineID) (Superseded, bool, error) {
	var s Superseded
	name := SupersededName(t)
	err := r.ReadDocument(ctx, name, &s)
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		return Superseded{}, false, nil
	case err != nil:
		return Superseded{}, false, err
	case s.Format != Format:
		return Superseded{}, false, fmt.Errorf("%s in %s has format %d; this version of requorum reads format %d: use a newer one", name, r, s.Format, Format)
	case s.Timeline != t:
		return Superseded{}, false, fmt.Errorf("%s in %s: %w: it ends timeline %s", name, r, ErrAltered, s.Timeline)
	}
	return s, true, nil
}
