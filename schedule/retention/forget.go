package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// writtenWithin is since when a log must not have grown for its timeline to be
// removed: an agent that only lost its repository is back within that.
const writtenWithin = time.Hour

// Forget is a timeline that is removed whole, whatever the policy says. Its JSON form
// is stable; docs/json.md describes it.
type Forget struct {
	Repository string                `json:"repository"`
	Timeline   repository.TimelineID `json:"timeline"`
	Made       time.Time             `json:"made"`
	Summary    string                `json:"summary"`
	Backups    []Deletion            `json:"backups"`
	LogEnd     uint64                `json:"log_end,omitempty"` // raft index of the last archived entry
	Objects    int                   `json:"objects"`
	Bytes      int64                 `json:"bytes"`
	Notes      []string              `json:"notes"`
	// Refused says why it may not be removed; empty where it may.
	Refused string `json:"refused,omitempty"`

	inv *Inventory
}

// PlanForget finds what goes with a timeline, and whether it may go: not one with
// pinned or locked backups, one that is still archived, or the one whose newest state
// a restore would take. It changes nothing.
func PlanForget(ctx context.Context, repo *repository.Repository, id repository.TimelineID, now time.Time) (*Forget, error) {
	inv, err := Read(ctx, repo, now)
	if err != nil {
		return nil, err
	}
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		return nil, err
	}
	// Where nothing can be chosen, or the newest is damaged, no restore takes any.
	newest, err := walreplay.NewArchives(repo).Newest(ctx, catalog)
	var damaged *snapshot.DamagedManifestError
	if err != nil && !errors.As(err, &damaged) && !errors.Is(err, snapshot.ErrAmbiguous) && !errors.Is(err, snapshot.ErrNoBackup) {
		return nil, err
	}
	f := &Forget{Repository: repo.String(), Timeline: id, Made: now.UTC(), Summary: catalog.Summary(id), Backups: []Deletion{}, Notes: []string{}, inv: inv}
	t := inv.timeline(id)
	if t == nil {
		return nil, fmt.Errorf("%w: there is no timeline %s in %s; 'requorum list' shows them", snapshot.ErrNoBackup, id, repo)
	}
	if t.Unread {
		f.Refused = fmt.Sprintf("timeline %s has more full snapshots than are read: prune it by rules first", id)
	}
	for _, b := range t.Backups {
		switch {
		case b.Pin:
			f.Refused = fmt.Sprintf("backup %s of timeline %s is pinned: 'requorum unpin' it first", b.ID, id)
		case b.LockedUntil.After(inv.Clock):
			f.Refused = fmt.Sprintf("backup %s of timeline %s is locked against deletion until %s", b.ID, id, b.LockedUntil.UTC().Format(time.DateTime+"Z"))
		}
		f.Backups = append(f.Backups, Deletion{id, b.ID, b.Taken, b.Index, b.Bytes, "its timeline was removed"})
	}
	for _, s := range t.Segments {
		f.LogEnd = max(f.LogEnd, s.Last)
	}
	switch {
	case f.Refused != "":
	case len(t.Segments)+len(t.Marks) > 0 && t.By.N == 0 && now.Sub(t.Seen) < writtenWithin:
		f.Refused = fmt.Sprintf("the log of timeline %s was archived up to %s: stop the agents that write it, and wait an hour", id, t.Seen.UTC().Format(time.DateTime+"Z"))
	case newest != nil && newest.Timeline == id, damaged != nil && damaged.Timeline == id:
		f.Refused = fmt.Sprintf("timeline %s is the one that a restore takes: what is left without it would pass for the newest state", id)
	}
	for _, other := range catalog.Timelines {
		if other.Parent != nil && other.Parent.Timeline == id {
			f.Notes = append(f.Notes, fmt.Sprintf("timeline %s goes on from it: the points from before that was opened cannot be restored any more", other.ID))
		}
	}
	for o, err := range repo.Sink().List(ctx, id.String()+"/", "") {
		if err != nil {
			return nil, fmt.Errorf("list timeline %s in %s: %w", id, repo, err)
		}
		f.Objects, f.Bytes = f.Objects+1, f.Bytes+o.Size
	}
	return f, nil
}

// Execute removes the timeline, after it has planned once more: where something came
// to it since, or it may not go any more, nothing is deleted. The descriptor goes
// last, so that an interrupted run is completed by the same command. It returns what
// it did also with an error.
func (f *Forget) Execute(ctx context.Context, repo *repository.Repository, o Options) (Result, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	x := &execution{Options: o, repo: repo, result: Result{Spared: []Spared{}}}
	err := x.forget(ctx, f)
	return x.result, err
}

func (x *execution) forget(ctx context.Context, f *Forget) error {
	if f.Refused != "" {
		return &RefusedError{f.Refused}
	}
	if _, err := x.probe(ctx); err != nil {
		return err
	}
	now, err := PlanForget(ctx, x.repo, f.Timeline, f.Made)
	if err != nil {
		return fmt.Errorf("look again before anything is deleted: %w", err)
	}
	if now.Refused != "" {
		return &RefusedError{now.Refused}
	}
	for _, b := range now.Backups {
		if !slices.ContainsFunc(f.Backups, func(l Deletion) bool { return l.Backup == b.Backup }) {
			return &RefusedError{fmt.Sprintf("backup %s was stored since the plan was made", b.Backup)}
		}
	}
	if now.LogEnd > f.LogEnd {
		return &RefusedError{fmt.Sprintf("its log was at raft index %d when the plan was made, and is at %d now: something writes it", f.LogEnd, now.LogEnd)}
	}
	x.inv = now.inv
	if _, err := x.prune(ctx, now.Backups); err != nil {
		return err
	}
	if s := x.result.Spared; len(s) > 0 {
		return &RefusedError{fmt.Sprintf("backup %s of timeline %s was pinned meanwhile: unpin it, and run the same command again", s[0].Backup, f.Timeline)}
	}
	if now.LogEnd > 0 {
		if err := x.removeLog(ctx, LogCut{Timeline: f.Timeline, Before: now.LogEnd + 1, Why: "its timeline was removed"}); err != nil {
			return err
		}
	}
	var names []string
	for o, err := range x.repo.Sink().List(ctx, f.Timeline.String()+"/", "") {
		if err != nil {
			return fmt.Errorf("list what is left of timeline %s: %w", f.Timeline, err)
		}
		names = append(names, o.Name)
	}
	if err := x.removeObjects(ctx, names, now.Bytes); err != nil || x.result.Locked > 0 {
		return err
	}
	gone, err := x.remove(ctx, repository.TimelineName(f.Timeline))
	if gone {
		x.result.Objects++
		x.Logger.Info("timeline removed", "timeline", f.Timeline)
	}
	return err
}
