package repository

import (
	"context"
	"errors"
	"fmt"
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
	Timeline  TimelineID `json:"timeline"`
	Backup    string     `json:"backup,omitempty"` // the full snapshot it was restored from
	RaftIndex uint64     `json:"raft_index"`       // last entry that is common to both
	Revision  int64      `json:"revision"`         // and the revision it reached
	// Chain is the value of the archived log's chain at RaftIndex, in
	// hexadecimal; empty where the log up to there was not archived.
	Chain string `json:"chain,omitempty"`
}

// Timeline reads one descriptor.
func (r *Repository) Timeline(ctx context.Context, id TimelineID) (Timeline, error) {
	var t Timeline
	if err := r.ReadDocument(ctx, timelineName(id), &t); err != nil {
		return Timeline{}, err
	}
	if t.ID != id {
		return Timeline{}, fmt.Errorf("%s in %s: %w: it describes timeline %s", timelineName(id), r, ErrAltered, t.ID)
	}
	return t, nil
}

// OpenTimeline writes t's descriptor. Where another writer was first the
// error is sinks.ErrExists, and Timeline tells what the other one wrote.
func (r *Repository) OpenTimeline(ctx context.Context, t Timeline) error {
	t.Format = Format
	return r.WriteDocument(ctx, timelineName(t.ID), t)
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
