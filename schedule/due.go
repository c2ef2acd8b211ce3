package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// duePatience is for how long one that follows leaves it to the archive's writer: a
// snapshot's own deadline, and a little more.
const duePatience = snapshot.DefaultTimeout + time.Minute

// keeper sees to the full snapshots that an archived log is of no use without: the
// first one of a timeline, and one behind each gap. Of several archivers the writer
// takes it; the others look again, and take it where none came for long. One that
// covers the gap already, whoever took it, is enough. Its fields are set before it is
// used.
type keeper struct {
	// Sink is the repository's.
	Sink sinks.Sink
	// State and LookAgain are those of the archiver.
	State     func() archive.State
	LookAgain func()
	// Take takes a full snapshot for a timeline.
	Take func(context.Context, repository.TimelineID) error
	// Notify is given what keeps the first snapshot from being taken, once for each
	// reason.
	Notify func(text string)

	mu    sync.Mutex // of several calls one is at it
	left  uint64     // where the gap begins that is left to the archive's writer
	since time.Time
}

// Begin sees to it that a timeline has a full snapshot at all. What becomes due
// later, the archiver says itself.
func (k *keeper) Begin(ctx context.Context) error {
	state := k.State()
	if state.Timeline == (repository.TimelineID{}) {
		return nil // it has not found it yet
	}
	return k.EnsureFull(ctx, archive.Gap{Timeline: state.Timeline.String(), First: 1})
}

const (
	// lookBegun is how often it is looked whether the archiver has begun.
	lookBegun = 250 * time.Millisecond
	// beginAgain is how soon the first full snapshot is tried again. Where another
	// archiver takes it, it is looked for sooner: lookBegun, doubled each time.
	beginAgain = time.Minute
)

// KeepBeginning calls Begin until the archiver's timeline has a full snapshot.
func (k *keeper) KeepBeginning(ctx context.Context) {
	last := ""
	for wait := lookBegun; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if s := k.State(); s.Archived == 0 || s.Checked.IsZero() {
			continue
		}
		err := k.Begin(ctx)
		if err == nil {
			k.LookAgain()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != last {
			k.Notify(text)
			last = text
		}
		if wait = min(2*wait, beginAgain); !errors.Is(err, archive.ErrElsewhere) {
			wait = beginAgain
		}
	}
}

// EnsureFull sees to it that there is a full snapshot which the log behind a gap
// goes on from. Its error is why there is none yet; it is to be called again.
func (k *keeper) EnsureFull(ctx context.Context, gap archive.Gap) error {
	timeline, err := repository.ParseTimelineID(gap.Timeline)
	if err != nil {
		return err
	}
	repo, err := repository.Open(ctx, k.Sink)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		return err
	}
	if covered, err := covers(ctx, repo, catalog, timeline, gap); covered || err != nil {
		return err // nil: another one took it
	}
	if k.Take == nil {
		return fmt.Errorf("timeline %s: nothing that is archived from index %d on can be restored until there is a full snapshot: take one with 'requorum backup'", timeline, gap.First)
	}
	if k.State().Role == archive.Follower {
		if k.left != gap.First || k.since.IsZero() {
			k.left, k.since = gap.First, time.Now()
		}
		if time.Since(k.since) < duePatience {
			return archive.ErrElsewhere
		}
	}
	return k.Take(ctx, timeline)
}

// covers says that a full snapshot is there which the log behind a gap goes on
// from, up to its end: another gap behind the snapshot makes it useless. One
// that was begun before the gap was found may be of the history before it, at
// whatever index.
func covers(ctx context.Context, repo *repository.Repository, catalog *snapshot.Catalog, timeline repository.TimelineID, gap archive.Gap) (bool, error) {
	fits := func(m *snapshot.Manifest) bool {
		return m.Timeline == timeline && m.Facts.RaftIndex+1 >= gap.First && (gap.Found.IsZero() || m.Started.After(gap.Found))
	}
	if !slices.ContainsFunc(catalog.Manifests, fits) {
		return false, nil // all the headers need not be read for that
	}
	log, err := walreplay.NewInventory(repo, catalog).History(ctx, timeline)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(log.Bases(), func(b *walreplay.Base) bool { return fits(b.Manifest) && log.Unbroken(b) }), nil
}
