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

// Catalog is what a repository holds, as its manifests say.
type Catalog struct {
	Timelines []repository.Timeline // in the order in which they were opened
	// Manifests that could be read, in the order of timelines and, within one,
	// from the oldest state of the log to the newest.
	Manifests []*Manifest
	// EncryptedSince is the first encrypted one of each timeline that has any: it is asked
	// for with each manifest, of which there may be very many.
	EncryptedSince map[repository.TimelineID]*Manifest
	// Damaged are the backups whose manifest cannot be used, because it is damaged or
	// unsigned, or whose object is gone or has another size, with the reason.
	Damaged []Unusable
	// DamagedTimelines are those whose descriptor is damaged, unsigned or gone. Their
	// backups are in Manifests; where their history came from is not known.
	DamagedTimelines []Unusable
	// Incomplete are objects without a manifest: what an interrupted backup
	// left, or what one that is running now has written.
	Incomplete []repository.Full
	// Unread are backups that were not looked at, since there are more than a
	// catalogue holds: see repository.Budget for which.
	Unread []Unusable
	// Archived is what the archived log, and the marks that end a timeline, say of
	// its end, for those of which it was looked up: see walreplay.Inventory. ReadCatalog
	// leaves it nil.
	Archived map[repository.TimelineID]Archived

	repository string // its URL
}

// Archived is what a timeline's archived log, and the document that ends a
// timeline, say of its end.
type Archived struct {
	// Seen is when its cluster was last observed; zero where nothing shows it.
	Seen time.Time
	// Revision is the highest one that its log is known to have reached; 0: none.
	Revision int64
	// Superseded says that a recovery, or somebody's answer, has ended it in favour of By.
	Superseded bool
	By         repository.TimelineID
	// Undone says that a recovery opened it and was taken back: nothing goes on
	// there.
	Undone bool
}

// Unusable is what a catalogue cannot use, and why: a backup, a timeline, or, with their
// number, the backups of a timeline that were not looked at. As an error it says that a
// backup was asked for, or is the newest one where that was asked for.
type Unusable struct {
	Timeline repository.TimelineID // zero: there are whole timelines more
	ID       string                // of a backup
	Unread   int
	Err      error // a *DamagedError, or ErrNewerFormat
}

func (u *Unusable) Error() string { return u.Err.Error() }
func (u *Unusable) Unwrap() error { return u.Err }

// Unsigned reports whether nothing shows that it is the cluster's: an unsigned manifest is
// named, and otherwise decides nothing, or whoever may add objects could keep everybody
// from the latest backup.
func (u *Unusable) Unsigned() bool { return errors.Is(u.Err, repository.ErrUnsigned) }

// isOf returns whether something unusable is of a timeline.
func isOf(t repository.TimelineID) func(Unusable) bool {
	return func(u Unusable) bool { return u.Timeline == t }
}

// ReadCatalog reads all manifests of a repository. A damaged one is listed as
// such and hides nothing else; what cannot be read for another reason is an
// error.
func ReadCatalog(ctx context.Context, repo *repository.Repository) (*Catalog, error) {
	ids, more, err := repo.ListTimelines(ctx)
	if err != nil {
		return nil, err
	}
	c := newCatalog()
	c.repository = repo.String()
	if more {
		c.Unread = append(c.Unread, Unusable{Err: repo.PassOver("timelines", &DamagedError{Object: repo.String(), Offset: -1,
			Err: fmt.Errorf("it has more timelines than the %d that are read, and of those without a descriptor as many: remove what nobody made", repository.MaxTimelines)})})
	}
	if err := c.addBackups(ctx, repo, ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := c.describeTimeline(ctx, repo, id); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(c.Timelines, func(a, b repository.Timeline) int { return a.Created.Compare(b.Created) })
	return c, nil
}

func newCatalog() *Catalog { return &Catalog{EncryptedSince: map[repository.TimelineID]*Manifest{}} }

// describeTimeline reads a timeline's descriptor. Without that and a backup it is
// what an interrupted first backup left.
func (c *Catalog) describeTimeline(ctx context.Context, repo *repository.Repository, id repository.TimelineID) error {
	t, err := repo.Timeline(ctx, id)
	altered := errors.Is(err, repository.ErrAltered)
	// An unsigned one in its place must not hide the backups.
	gone := errors.Is(err, sinks.ErrNotFound) || altered && !repo.Doubtful(err)
	switch {
	case gone && !c.hasBackup(id):
		return nil
	case gone, altered:
		t = repository.Timeline{ID: id, Reason: "not known, its descriptor is damaged or gone"}
		c.DamagedTimelines = append(c.DamagedTimelines, Unusable{Timeline: id, Err: repo.PassOver(repository.TimelineName(id), &DamagedError{
			Object: "the descriptor of timeline " + id.String() + " in " + repo.String(), Offset: -1, Err: err})})
	case err != nil:
		return err
	}
	c.Timelines = append(c.Timelines, t)
	return nil
}

// ReadBackups reads the manifests of one timeline: the Manifests, Damaged, Incomplete
// and Unread of a Catalog, as they are now.
func ReadBackups(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (*Catalog, error) {
	c := newCatalog()
	if err := c.addBackups(ctx, repo, []repository.TimelineID{t}); err != nil {
		return nil, err
	}
	return c, nil
}

// addBackups reads the manifests of timelines, as many as may be held.
func (c *Catalog) addBackups(ctx context.Context, repo *repository.Repository, timelines []repository.TimelineID) error {
	fulls, listed, err := repo.SomeFulls(ctx, timelines)
	if err != nil {
		return err
	}
	for _, t := range timelines {
		n := 0 // they are in the order of timelines
		for n < len(fulls) && fulls[n].Timeline == t {
			n++
		}
		if err := c.addTimeline(ctx, repo, t, fulls[:n]); err != nil {
			return err
		}
		if unread := listed[t] - n; unread > 0 {
			c.Unread = append(c.Unread, Unusable{Timeline: t, Unread: unread, Err: repo.PassOver(t.String()+"/full", &DamagedError{
				Object: "timeline " + t.String() + " in " + repo.String(), Offset: -1,
				Err: fmt.Errorf("%d of its backups were not read: a catalogue holds those that were stored first and last, %d backups and %d MiB of manifests at most: remove what nobody made", unread, repository.MaxBackups, repository.MaxBytes>>20)})})
		}
		fulls = fulls[n:]
	}
	return nil
}

func (c *Catalog) addTimeline(ctx context.Context, repo *repository.Repository, t repository.TimelineID, fulls []repository.Full) error {
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
			if repo.Checks() && !errors.Is(m.err, ErrNewerFormat) && !errors.Is(m.err, repository.ErrUnsigned) {
				m.err = repo.Refuse(repository.ManifestName(t, full.ID), m.err) // a damaged one may be anybody's
			}
			_ = repo.PassOver(repository.ManifestName(t, full.ID), m.err)
			c.Damaged = append(c.Damaged, Unusable{Timeline: t, ID: full.ID, Err: m.err})
		case m.manifest != nil:
			switch err := checkObject(ctx, repo, full, m.manifest); {
			case err == nil:
				found = append(found, m.manifest)
			case errors.As(err, new(*DamagedError)):
				c.Damaged = append(c.Damaged, Unusable{Timeline: t, ID: full.ID, Err: repo.PassOver(m.manifest.Object.Name, err)})
			default:
				return err
			}
		}
	}
	// By the log, not by the clocks of those who wrote.
	slices.SortStableFunc(found, olderState)
	c.Manifests = append(c.Manifests, found...)
	if i := slices.IndexFunc(found, func(m *Manifest) bool { return m.Object.Encrypted() }); i >= 0 {
		c.EncryptedSince[t] = found[i]
	}
	return nil
}

// checkObject compares what the listing shows with the manifest: an object that
// is gone or has another size needs no reading to be found damaged.
func checkObject(ctx context.Context, repo *repository.Repository, full repository.Full, m *Manifest) error {
	object := m.Object.Name
	i := slices.IndexFunc(full.Objects, func(o sinks.Object) bool { return o.Name == object })
	var o sinks.Object
	var err error
	switch {
	case i >= 0:
		o = full.Objects[i]
	case full.More > 0:
		o, err = repo.Sink().Stat(ctx, object)
	default:
		err = sinks.ErrNotFound
	}
	if err == nil && o.Size != m.Object.StoredSize {
		err = fmt.Errorf("it has %d bytes, its manifest says %d", o.Size, m.Object.StoredSize)
	} else if err != nil && !errors.Is(err, sinks.ErrNotFound) {
		return err
	}
	if err != nil {
		return &DamagedError{Object: object + " in " + repo.String(), Offset: -1, Err: err}
	}
	return nil
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
// the backup among those of the same index.
func olderState(a, b *Manifest) int {
	return cmp.Or(cmp.Compare(a.Facts.RaftIndex, b.Facts.RaftIndex), a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
}
