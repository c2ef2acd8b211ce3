package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// Catalog is what a repository holds, as its manifests tell.
type Catalog struct {
	Timelines []repository.Timeline
	// Manifests that could be read, in the order of timelines and, within one,
	// from the oldest state of the log to the newest.
	Manifests []*Manifest
	// Damaged are the backups whose manifest cannot be used, or whose object is
	// gone or has another size, with the reason.
	Damaged []DamagedBackup
	// DamagedTimelines are those whose descriptor is damaged or gone. Their
	// backups are in Manifests; where their history came from is not known.
	DamagedTimelines []DamagedTimeline
	// Incomplete are objects without a manifest: what an interrupted backup
	// left, or what one that is running now has written.
	Incomplete []repository.Full
	// Archived is what the archived log, and the marks that end a timeline, tell of
	// its end, for those of which it was looked up: see walreplay.FindIn. ReadCatalog
	// leaves it nil.
	Archived map[repository.TimelineID]Archived
}

// Archived is what a timeline's archived log, and the document that ends a
// timeline, tell of its end.
type Archived struct {
	// Seen is when its cluster was last observed; zero where nothing tells.
	Seen time.Time
	// Superseded says that a recovery has ended it.
	Superseded bool
	// Undone says that a recovery opened it and was taken back: nothing goes on
	// there.
	Undone bool
}

// DamagedBackup is a backup whose manifest cannot be used.
type DamagedBackup struct {
	Timeline repository.TimelineID
	ID       string
	Err      error
}

// DamagedTimeline is a timeline whose descriptor cannot be used.
type DamagedTimeline struct {
	Timeline repository.TimelineID
	Err      error // a *DamagedError
}

// ReadCatalog reads all manifests of a repository. A damaged one is listed as
// such and hides nothing else; what cannot be read for another reason is an
// error.
func ReadCatalog(ctx context.Context, repo *repository.Repository) (*Catalog, error) {
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	c := &Catalog{}
	for _, id := range ids {
		known, err := c.describeTimeline(ctx, repo, id)
		if err != nil {
			return nil, err
		}
		if err := c.addTimeline(ctx, repo, id); err != nil {
			return nil, err
		}
		// Without a descriptor and a backup it is what an interrupted first backup
		// left.
		if known || c.hasBackup(id) {
			continue
		}
		c.Timelines = slices.DeleteFunc(c.Timelines, func(t repository.Timeline) bool { return t.ID == id })
		c.DamagedTimelines = slices.DeleteFunc(c.DamagedTimelines, func(d DamagedTimeline) bool { return d.Timeline == id })
	}
	return c, nil
}

// describeTimeline reads a timeline's descriptor; known tells that there is one.
func (c *Catalog) describeTimeline(ctx context.Context, repo *repository.Repository, id repository.TimelineID) (known bool, err error) {
	t, err := repo.Timeline(ctx, id)
	gone := errors.Is(err, sinks.ErrNotFound)
	switch {
	case gone, errors.Is(err, repository.ErrAltered):
		t = repository.Timeline{ID: id, Reason: "not known, its descriptor is damaged or gone"}
		c.DamagedTimelines = append(c.DamagedTimelines, DamagedTimeline{id, &DamagedError{
			Object: "the descriptor of timeline " + id.String() + " in " + repo.String(), Offset: -1, Err: err}})
	case err != nil:
		return false, err
	}
	c.Timelines = append(c.Timelines, t)
	return !gone, nil
}

// ReadBackups reads the manifests of one timeline: the Manifests, Damaged and
// Incomplete of a Catalog, as they are now.
func ReadBackups(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (*Catalog, error) {
	c := &Catalog{}
	if err := c.addTimeline(ctx, repo, t); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Catalog) addTimeline(ctx context.Context, repo *repository.Repository, t repository.TimelineID) error {
	fulls, err := repo.Fulls(ctx, t)
	if err != nil {
		return err
	}
	manifests, err := readManifests(ctx, repo, fulls)
	if err != nil {
		return err
	}
	var found []*Manifest
	for i, full := range fulls {
		switch m := manifests[i]; {
		case !full.Complete:
			c.Incomplete = append(c.Incomplete, full)
		case m.err != nil:
			c.Damaged = append(c.Damaged, DamagedBackup{t, full.ID, m.err})
		case m.manifest != nil:
			if err := checkObject(repo, full, m.manifest); err != nil {
				c.Damaged = append(c.Damaged, DamagedBackup{t, full.ID, err})
				continue
			}
			found = append(found, m.manifest)
		}
	}
	// By the log, not by the clocks of those who wrote.
	slices.SortStableFunc(found, olderState)
	c.Manifests = append(c.Manifests, found...)
	return nil
}

// checkObject compares what the listing shows with the manifest: an object that
// is gone or has another size needs no reading to be found damaged.
func checkObject(repo *repository.Repository, full repository.Full, m *Manifest) error {
	for _, o := range full.Objects {
		if o.Name != m.Object.Name {
			continue
		}
		if o.Size != m.Object.StoredSize {
			return &DamagedError{Object: o.Name + " in " + repo.String(), Offset: -1, Err: fmt.Errorf("it has %d bytes, its manifest says %d", o.Size, m.Object.StoredSize)}
		}
		return nil
	}
	return &DamagedError{Object: m.Object.Name + " in " + repo.String(), Offset: -1, Err: sinks.ErrNotFound}
}

// Newest returns the manifest of the newest state in one timeline, or nil.
func (c *Catalog) Newest(t repository.TimelineID) *Manifest {
	for _, m := range slices.Backward(c.Manifests) {
		if m.Timeline == t {
			return m
		}
	}
	return nil
}

// newestRead is Newest of those that were read from a member.
func (c *Catalog) newestRead(t repository.TimelineID) *Manifest {
	for _, m := range slices.Backward(c.Manifests) {
		if m.Timeline == t && !m.Synthetic() {
			return m
		}
	}
	return nil
}

// HighestRevision is the highest revision that any backup here reached,
// damaged ones apart.
func (c *Catalog) HighestRevision() int64 {
	var highest int64
	for _, m := range c.Manifests {
		highest = max(highest, m.Facts.Revision)
	}
	return highest
}

// manifestReaders is how many manifests are fetched at once: enough to hide
// the round trips to an object store, few enough not to be throttled.
const manifestReaders = 16

type readResult struct {
	manifest *Manifest
	err      error // a *DamagedError, or ErrNewerFormat
}

// readManifests reads the manifests of the complete ones among fulls, in their
// order. One that vanished meanwhile (pruned) has neither manifest nor error.
func readManifests(ctx context.Context, repo *repository.Repository, fulls []repository.Full) ([]readResult, error) {
	results := make([]readResult, len(fulls))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(manifestReaders)
	for i, full := range fulls {
		if !full.Complete {
			continue
		}
		group.Go(func() error {
			m, err := ReadManifest(ctx, repo, full.Timeline, full.ID)
			var damaged *DamagedError
			if errors.As(err, &damaged) || errors.Is(err, ErrNewerFormat) {
				results[i].err, err = err, nil
			}
			if errors.Is(err, sinks.ErrNotFound) {
				err = nil
			}
			results[i].manifest = m
			return err
		})
	}
	return results, group.Wait()
}

// olderState orders by what the log had reached: index first, then the time of
// the backup among those of the same index. Of these, one that was read from a
// member goes before all that were made without: it depends on nothing else.
func olderState(a, b *Manifest) int {
	read := func(m *Manifest) int {
		if m.Synthetic() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Facts.RaftIndex, b.Facts.RaftIndex), cmp.Compare(read(a), read(b)), a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
}
