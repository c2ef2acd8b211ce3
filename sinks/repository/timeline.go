package repository

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/requorum/requorum/sinks"
)

// Timeline describes one incarnation of a cluster: where its history came
// from and why it was opened. It is written once.
type Timeline struct {
	Format  int        `json:"format"`
	ID      TimelineID `json:"id"`
	Created time.Time  `json:"created"` // by the clock of the tool that opened it
	Reason  string     `json:"reason"`
	Parent  *Branch    `json:"parent,omitempty"` // nil where none is known
	// Members are the names the cluster had when the timeline was opened.
	Members []string `json:"members,omitempty"`
}

// Branch is the point of another timeline where a timeline begins.
type Branch struct {
	Timeline  TimelineID `json:"timeline,omitzero"`
	Backup    string     `json:"backup,omitempty"` // the full snapshot it was restored from
	RaftIndex uint64     `json:"raft_index"`       // last entry that is common to both
	Revision  int64      `json:"revision"`         // and the revision it reached
	// Chain is the value of the archived log's chain at RaftIndex, in
	// hexadecimal; empty where the log up to there was not archived.
	Chain string `json:"chain,omitempty"`
}

// Timeline reads one descriptor.
func (r *Repository) Timeline(ctx context.Context, id TimelineID) (Timeline, error) {
	return Read(ctx, r, TimelineName(id), func(t Timeline) (int, bool, string) {
		return t.Format, t.ID == id, "of timeline " + t.ID.String()
	})
}

// OpenTimeline writes t's descriptor. Where another writer was first the
// error is sinks.ErrExists, and Timeline says what the other one wrote.
func (r *Repository) OpenTimeline(ctx context.Context, t Timeline) error {
	t.Format = Format
	return r.WriteDocument(ctx, TimelineName(t.ID), t)
}

// EnsureTimeline returns timeline id, opening it with t where it is not there
// yet. Of several that do so at once one opens it and all return the same.
func (r *Repository) EnsureTimeline(ctx context.Context, t Timeline) (Timeline, error) {
	found, err := r.Timeline(ctx, t.ID)
	if !errors.Is(err, sinks.ErrNotFound) {
		return found, err
	}
	if err := r.OpenTimeline(ctx, t); err != nil && !errors.Is(err, sinks.ErrExists) {
		return Timeline{}, err
	}
	return r.Timeline(ctx, t.ID)
}

// Superseded is a mark that ends a timeline: its cluster goes on in another one,
// and no member of it may serve again. It is written once.
//
// A recovery that is taken back (see Reinstate) ends the timeline that it opened,
// with a mark that says Undone. From then on the marks by that timeline count for
// nothing: those that it superseded live again. They may end again, by another
// one: so a timeline may have several marks, of which one counts at most.
type Superseded struct {
	Format   int        `json:"format"`
	Timeline TimelineID `json:"timeline"` // the one that ended
	By       TimelineID `json:"by"`       // the one that goes on
	At       uint64     `json:"at"`       // raft index of the last entry that is common to both; 0 where it is not known
	Undone   bool       `json:"undone,omitempty"`
	Reason   string     `json:"reason"`
	Created  time.Time  `json:"created"` // by the clock of the tool that wrote it
}

const supersededBase = "/superseded"

// SupersededName is the name of the n-th mark on a timeline, from 1.
func SupersededName(t TimelineID, n int) string {
	name := t.String() + supersededBase
	if n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	return name + documentSuffix
}

// ParseSupersededName reads what SupersededName wrote.
func ParseSupersededName(name string) (t TimelineID, n int, err error) {
	n = 1
	scan(name, timelineFormat+supersededBase+"-%d", &t.ClusterID, &t.N, &n)
	return t, n, checkName(name, SupersededName(t, n), "a mark that ends a timeline", t.N > 0 && n > 0)
}

// Supersede ends timeline s.Timeline. Where it has ended already the error is
// sinks.ErrExists, and Superseded says by which it was.
func (r *Repository) Supersede(ctx context.Context, s Superseded) error {
	s.Undone = false
	return r.end(ctx, s)
}

// Reinstate takes a recovery back: s.Timeline, which the recovery opened, ends in
// favour of s.By, and whatever s.Timeline had superseded lives again. Where that
// was done before it is no error. Where s.Timeline was superseded by yet another
// one the error is sinks.ErrExists: that recovery has to be taken back first.
func (r *Repository) Reinstate(ctx context.Context, s Superseded) error {
	s.Undone = true
	err := r.end(ctx, s)
	if !errors.Is(err, sinks.ErrExists) {
		return err
	}
	if ended, _, again := r.Superseded(ctx, s.Timeline); again != nil || ended.Undone {
		return again
	}
	return err
}

// end writes s behind the marks that count for nothing.
func (r *Repository) end(ctx context.Context, s Superseded) error {
	if s.Timeline == s.By {
		return fmt.Errorf("timeline %s cannot be superseded by itself", s.By)
	}
	s.Format = Format
	for range maxMarks {
		ended, marks, err := r.ending(ctx, s.Timeline)
		if err != nil {
			return err
		}
		name := SupersededName(s.Timeline, marks+1)
		if ended == nil && marks == maxMarks {
			return tooManyMarks(s.Timeline)
		}
		if ended != nil {
			return fmt.Errorf("write %s in %s: timeline %s was superseded by %s before: %w", name, r, s.Timeline, ended.By, sinks.ErrExists)
		}
		// Another writer may have been first: what it wrote decides.
		if err := r.WriteDocument(ctx, name, s); !errors.Is(err, sinks.ErrExists) {
			return err
		}
	}
	return tooManyMarks(s.Timeline)
}

// maxMarks bounds the marks of one timeline: no cluster is recovered as often, and
// whoever may add objects could add marks without end.
const maxMarks = 64

func tooManyMarks(t TimelineID) error {
	return fmt.Errorf("timeline %s has more than %d marks that end it: remove those that nobody made", t, maxMarks)
}

// Superseded reports whether timeline t has ended, and by what. Damage is
// ErrAltered: in doubt the timeline has ended. Unsigned marks are passed over.
func (r *Repository) Superseded(ctx context.Context, t TimelineID) (Superseded, bool, error) {
	ended, _, err := r.ending(ctx, t)
	if err != nil || ended == nil {
		return Superseded{}, false, err
	}
	return *ended, true, nil
}

// ending is the mark that ends t, or nil, and how many marks there are up to that.
func (r *Repository) ending(ctx context.Context, t TimelineID) (ended *Superseded, marks int, err error) {
	for marks < maxMarks {
		s, err := r.ReadSuperseded(ctx, SupersededName(t, marks+1))
		switch {
		case errors.Is(err, sinks.ErrNotFound):
			return nil, marks, nil
		case errors.Is(err, ErrAltered) && !r.Doubtful(err): // somebody's, and its name is taken
			marks++
			continue
		case err != nil:
			return nil, marks, err
		}
		marks++
		if s.Undone {
			return &s, marks, nil
		}
		taken, err := r.undone(ctx, s.By)
		if err != nil {
			return nil, marks, err
		}
		if !taken {
			return &s, marks, nil
		}
	}
	return nil, marks, nil // nobody writes more: whatever is behind these is a stray object
}

// undone reports whether the recovery that opened t was taken back.
func (r *Repository) undone(ctx context.Context, t TimelineID) (bool, error) {
	for n := range maxMarks {
		s, err := r.ReadSuperseded(ctx, SupersededName(t, n+1))
		switch {
		case errors.Is(err, sinks.ErrNotFound):
			return false, nil
		case errors.Is(err, ErrAltered) && !r.Doubtful(err):
		case err != nil || s.Undone:
			return err == nil, err
		}
	}
	return false, nil
}

// ReadSuperseded reads one mark, whether it counts or not. Damage, and one that
// belongs to another timeline, is ErrAltered.
func (r *Repository) ReadSuperseded(ctx context.Context, name string) (Superseded, error) {
	t, _, err := ParseSupersededName(name)
	if err != nil {
		return Superseded{}, err
	}
	return Read(ctx, r, name, func(s Superseded) (int, bool, string) {
		return s.Format, s.Timeline == t && s.By.N > 0 && s.By != t, fmt.Sprintf("about timeline %s, which %s continues", s.Timeline, s.By)
	})
}

// SupersededNames lists the marks of a timeline, whether they count or not.
func (r *Repository) SupersededNames(ctx context.Context, t TimelineID) ([]string, error) {
	return r.namesBelow(ctx, t.String()+supersededBase, "marks that end timeline "+t.String(), func(name string) error {
		_, _, err := ParseSupersededName(name)
		return err
	})
}
