package retention

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

// parallel is how many small requests are under way at once: enough to hide the
// round trips to an object store, few enough not to be throttled.
const parallel = 16

// Read looks a repository through: it lists all objects once, reads manifests,
// pins, verdicts and the headers of log segments, and asks for the locks on
// backups. With trusted keys only verdicts count that one of them signed.
//
// What a newer version of requorum wrote there is an error: who does not
// understand it must not delete beside it. So is a damaged marker.
func Read(ctx context.Context, repo *repository.Repository, now time.Time, trusted ...ed25519.PublicKey) (*Inventory, error) {
	if damage := repo.Damage(); damage != nil {
		return nil, fmt.Errorf("nothing is pruned in a repository whose marker is damaged: put it back first (docs/format.md): %w", damage)
	}
	r := &reading{repo: repo, now: now, inv: &Inventory{Repository: repo.String()}}
	if err := r.list(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.catalog, err = snapshot.ReadCatalog(ctx, repo); err != nil {
		return nil, err
	}
	if r.verdicts, err = verdict.ReadAll(ctx, repo, trusted...); err != nil {
		return nil, err
	}
	if err := r.readPins(ctx); err != nil {
		return nil, err
	}
	for _, t := range r.catalog.Timelines {
		if err := r.timeline(ctx, t.ID); err != nil {
			return nil, fmt.Errorf("look through timeline %s in %s: %w", t.ID, repo, err)
		}
	}
	for _, full := range r.catalog.Incomplete { // of timelines that have nothing else
		if r.inv.timeline(full.Timeline) == nil {
			t := &Timeline{ID: full.Timeline}
			r.inv.Timelines = append(r.inv.Timelines, t)
			if err := r.leftovers(ctx, t); err != nil {
				return nil, err
			}
		}
	}
	r.useVerdicts()
	return r.inv, r.readLocks(ctx)
}

// reading is an inventory in the making.
type reading struct {
	repo     *repository.Repository
	now      time.Time
	inv      *Inventory
	catalog  *snapshot.Catalog
	verdicts verdict.Chain
	pins     map[string]repository.Pin // by name

	folders  map[string][]sinks.Object // in the folders of backups, by manifest's name
	segments map[string]sinks.Object
	records  map[string]sinks.Object // that backups were let go, by name
	letGo    map[repository.TimelineID][]uint64
	stored   map[string]time.Time // verdicts, by name
}

// list tells all objects apart by their names.
func (r *reading) list(ctx context.Context) error {
	r.folders, r.segments, r.records = map[string][]sinks.Object{}, map[string]sinks.Object{}, map[string]sinks.Object{}
	r.letGo, r.stored = map[repository.TimelineID][]uint64{}, map[string]time.Time{}
	for o, err := range r.repo.Sink().List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list all objects in %s: %w", r.repo, err)
		}
		if o.ModTime.After(r.inv.Clock) {
			r.inv.Clock = o.ModTime
		}
		r.sort(o)
	}
	return nil
}

func (r *reading) sort(o sinks.Object) {
	folder, rest, _ := strings.Cut(o.Name, "/")
	switch folder {
	case "claims":
		r.inv.Claims = append(r.inv.Claims, o)
	case "scratch":
		r.inv.Scratch = append(r.inv.Scratch, o)
	case "verdicts":
		r.stored[o.Name] = o.ModTime
	case "pruned":
		if t, index, err := repository.ParsePrunedLogName(o.Name); err == nil {
			r.letGo[t] = append(r.letGo[t], index)
		} else if t, backup, err := repository.ParsePrunedName(o.Name); err == nil {
			r.records[o.Name] = o
			r.inv.Pruned = append(r.inv.Pruned, PrunedRecord{Timeline: t, Backup: backup, Written: o.ModTime})
		}
	default:
		t, err := repository.ParseTimelineID(folder)
		if err != nil {
			return
		}
		if kind, behind, _ := strings.Cut(rest, "/"); kind == "full" {
			if id, _, ok := strings.Cut(behind, "/"); ok && repository.ValidBackupID(id) == nil {
				name := repository.ManifestName(t, id)
				r.folders[name] = append(r.folders[name], o)
			}
		} else if _, err := repository.ParseSegmentName(o.Name); err == nil {
			r.segments[o.Name] = o
		}
	}
}

func (r *reading) readPins(ctx context.Context) error {
	pins, err := r.repo.Pins(ctx)
	r.pins = map[string]repository.Pin{}
	for _, p := range pins {
		r.pins[repository.PinName(p.Timeline, p.Backup)] = p
	}
	return err
}

// timeline adds one timeline.
func (r *reading) timeline(ctx context.Context, id repository.TimelineID) error {
	t := &Timeline{ID: id}
	ended, is, err := r.repo.Superseded(ctx, id)
	switch {
	case errors.Is(err, repository.ErrAltered): // in doubt it goes on, and more is kept
	case err != nil:
		return err
	case is:
		t.By, t.Ended = ended.By, ended.Created
	}
	for _, m := range r.catalog.Manifests {
		if m.Timeline == id {
			t.Backups = append(t.Backups, r.backup(m))
			r.see(t, m.Finished)
		}
	}
	for _, b := range r.catalog.Damaged {
		if b.Timeline != id {
			continue
		}
		if errors.Is(b.Err, snapshot.ErrNewerFormat) {
			return b.Err
		}
		t.Backups = append(t.Backups, r.damaged(b))
	}
	sortBackups(t.Backups)
	if err := r.readLog(ctx, t); err != nil {
		return err
	}
	r.inv.Timelines = append(r.inv.Timelines, t)
	return r.leftovers(ctx, t)
}

// see takes an observation. One in the planner's future is of a clock that is
// ahead, and tells nothing: it would let things go while nothing new is stored.
func (r *reading) see(t *Timeline, at time.Time) {
	if !at.After(r.now) {
		t.see(at)
	}
}

func (t *Timeline) see(at time.Time) {
	if at.After(t.Seen) {
		t.Seen = at
	}
}

func (r *reading) backup(m *snapshot.Manifest) Backup {
	b := Backup{
		Timeline: m.Timeline, ID: m.ID, Taken: m.Started, Finished: later(m.Started, m.Finished),
		Index: m.Facts.RaftIndex, Revision: m.Facts.Revision, Synthetic: m.Synthetic(),
	}
	r.named(&b)
	if word, is := r.verdicts.Damaged(m); is {
		b.Damaged = fmt.Sprintf("verdict %d found it damaged", word.Verdict.Sequence)
	}
	_, b.Proved = r.verdicts.Newest(m, report.Structure)
	return b
}

func (r *reading) damaged(d snapshot.DamagedBackup) Backup {
	b := Backup{Timeline: d.Timeline, ID: d.ID, Damaged: d.Err.Error()}
	b.Taken, _ = repository.BackupTime(d.ID) // a listed ID is valid
	b.Finished = b.Taken
	r.named(&b)
	return b
}

// named adds what names of objects tell of a backup.
func (r *reading) named(b *Backup) {
	for _, o := range r.folders[repository.ManifestName(b.Timeline, b.ID)] {
		b.Bytes += o.Size
		b.LockedUntil = later(b.LockedUntil, o.LockedUntil)
	}
	if pin, is := r.pins[repository.PinName(b.Timeline, b.ID)]; is {
		b.Pin, b.Pinned = true, pin.Reason
	}
	_, b.Recorded = r.records[repository.PrunedName(b.Timeline, b.ID)]
}

// readLocks asks for the locks on backups and leftovers: listings do not tell.
func (r *reading) readLocks(ctx context.Context) error {
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	ask := func(until *time.Time, names []string) {
		group.Go(func() error {
			for _, name := range names {
				o, err := r.repo.Sink().Stat(limited, name)
				if err != nil && !errors.Is(err, sinks.ErrNotFound) {
					return fmt.Errorf("ask for the lock on %s: %w", name, err)
				}
				*until = later(*until, o.LockedUntil)
			}
			return nil
		})
	}
	for _, t := range r.inv.Timelines {
		for i := range t.Backups {
			b := &t.Backups[i]
			ask(&b.LockedUntil, namesOf(r.folders[repository.ManifestName(b.Timeline, b.ID)]))
		}
		for i := range t.Leftovers {
			ask(&t.Leftovers[i].LockedUntil, t.Leftovers[i].Objects)
		}
	}
	return group.Wait()
}

func namesOf(objects []sinks.Object) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.Name)
	}
	return names
}
