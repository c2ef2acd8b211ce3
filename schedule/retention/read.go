package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/segment"
)

// parallel is how many small requests are under way at once: enough to hide the
// round trips to an object store, few enough not to be throttled.
const parallel = 16

// Read looks a repository through: it lists all objects once, reads manifests,
// pins, verdicts and the headers of log segments, and asks for the locks on
// backups.
//
// What a newer version of requorum wrote there is an error: who does not
// understand it must not delete beside it. So is a damaged marker.
func Read(ctx context.Context, repo *repository.Repository, now time.Time) (*Inventory, error) {
	if damage := repo.Damage(); damage != nil {
		return nil, fmt.Errorf("nothing is pruned in a repository whose marker is damaged: put it back first (docs/format.md): %w", damage)
	}
	r := &reading{repo: repo, now: now, inv: &Inventory{Repository: repo.String()}}
	if err := r.list(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.all, err = walreplay.ReadInventory(ctx, repo); err != nil {
		return nil, err
	}
	if r.verdicts, err = verdict.ReadAll(ctx, repo); err != nil {
		return nil, err
	}
	if r.pins, err = repo.Pins(ctx); err != nil {
		return nil, err
	}
	for _, t := range r.all.Timelines {
		if err := r.timeline(ctx, t.ID); err != nil {
			return nil, fmt.Errorf("look through timeline %s in %s: %w", t.ID, repo, err)
		}
	}
	if err := r.hold(ctx); err != nil {
		return nil, err
	}
	for _, full := range r.all.Incomplete { // of timelines that have nothing else
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
	all      *walreplay.Inventory
	verdicts verdict.List
	pins     map[string]*repository.Pin // by name

	folders  map[string][]sinks.Object // in the folders of backups, by manifest's name
	segments map[string]sinks.Object
	records  map[string]sinks.Object // that backups were pruned, by name
	stored   map[string]time.Time    // verdicts, by name
}

// hold marks the timelines that may be needed to restore a cluster that began again
// without what they have.
func (r *reading) hold(ctx context.Context) error {
	err := r.all.CheckStartedOver(ctx)
	var over *snapshot.StartedOverError
	if !errors.As(err, &over) {
		return err
	}
	for _, t := range r.inv.Timelines {
		if t.ID.ClusterID == over.From.ClusterID && t.ID != over.Newest {
			t.Held = fmt.Sprintf("the cluster began again without it, as timeline %s, and nobody has answered that", over.Newest)
		}
	}
	return nil
}

// list distinguishes all objects by their names.
func (r *reading) list(ctx context.Context) error {
	r.folders, r.segments, r.records = map[string][]sinks.Object{}, map[string]sinks.Object{}, map[string]sinks.Object{}
	r.stored = map[string]time.Time{}
	for o, err := range r.repo.Sink().List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list all objects in %s: %w", r.repo, err)
		}
		if o.ModTime.After(r.inv.Clock) {
			r.inv.Clock = o.ModTime
		}
		r.sort(o)
	}
	for name := range r.records {
		counts, err := r.repo.Counts(ctx, name)
		if err != nil {
			return err
		}
		if !counts {
			delete(r.records, name)
		}
	}
	r.inv.Pruned = slices.DeleteFunc(r.inv.Pruned, func(p PrunedRecord) bool {
		_, counts := r.records[repository.PrunedName(p.Timeline, p.Backup)]
		return !counts
	})
	return nil
}

func (r *reading) sort(o sinks.Object) {
	folder, rest, _ := strings.Cut(o.Name, "/")
	switch folder {
	case "jobs":
		r.inv.Results = append(r.inv.Results, o)
	case "scratch":
		r.inv.Scratch = append(r.inv.Scratch, o)
	case "verdicts":
		r.stored[o.Name] = o.ModTime
	case "pruned":
		if t, backup, err := repository.ParsePrunedName(o.Name); err == nil {
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

// timeline adds one timeline.
func (r *reading) timeline(ctx context.Context, id repository.TimelineID) error {
	t := &Timeline{ID: id, Unread: slices.ContainsFunc(r.all.Unread, func(u snapshot.Unusable) bool { return u.Timeline == id })}
	ended, is, err := r.repo.Superseded(ctx, id)
	switch {
	case errors.Is(err, repository.ErrAltered): // in doubt it goes on, and more is kept
	case err != nil:
		return err
	case is:
		t.By, t.Ended = ended.By, ended.Created
	}
	for _, m := range r.all.Manifests {
		if m.Timeline == id {
			b := r.backup(m)
			t.Backups = append(t.Backups, b)
			r.see(t, b.Finished)
		}
	}
	for _, b := range r.all.Damaged {
		if b.Timeline != id || b.Unsigned() { // an unsigned one may be another agent's, with a newer key: it stays
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
// ahead, and says nothing: things would be pruned while nothing new is stored.
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
		Index: m.Facts.RaftIndex, Revision: m.Facts.Revision,
	}
	r.named(&b)
	if word, is := r.verdicts.Damaged(m); is {
		b.Unusable = fmt.Sprintf("the verdict of %s found it damaged", word.Verdict.Finished.Format(time.DateTime+"Z"))
	}
	if err := r.all.CheckEncrypted(m); err != nil {
		b.Unusable, b.InClear = err.Error(), true
	}
	_, b.Proved = r.verdicts.Newest(m, report.Structure)
	return b
}

func (r *reading) damaged(d snapshot.Unusable) Backup {
	b := Backup{Timeline: d.Timeline, ID: d.ID, Unusable: d.Err.Error()}
	b.Taken, _ = repository.BackupTime(d.ID) // a listed ID is valid
	b.Finished = b.Taken
	r.named(&b)
	return b
}

// clockMargin is how far a host's clock may be ahead of the place's, which may know whole
// seconds only.
const clockMargin = time.Minute

// lateAfter is how long after it was finished a manifest is stored at the latest by who
// took the backup, where no clock is wrong.
const lateAfter = time.Hour

// named adds what names of objects say of a backup.
func (r *reading) named(b *Backup) {
	manifest := repository.ManifestName(b.Timeline, b.ID)
	for _, o := range r.folders[manifest] {
		b.Bytes += o.Size
		b.LockedUntil = later(b.LockedUntil, o.LockedUntil)
		// Its clock may have been ahead, or made up: no backup is later than its manifest.
		if latest := o.ModTime.Add(clockMargin); o.Name == manifest && !o.ModTime.IsZero() {
			b.Taken, b.Finished = earlier(b.Taken, latest), earlier(b.Finished, latest)
			b.Late = o.ModTime.Sub(b.Finished) > lateAfter
		}
	}
	if pin := r.pins[repository.PinName(b.Timeline, b.ID)]; pin != nil {
		b.Pin, b.Pinned = true, pin.Reason
	}
	_, b.Recorded = r.records[repository.PrunedName(b.Timeline, b.ID)]
}

// readLocks asks for the locks on backups and leftovers: listings do not show them.
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

// leftovers finds the objects in a timeline's backup folders that are of no use.
func (r *reading) leftovers(ctx context.Context, t *Timeline) error {
	prefix := t.ID.String() + "/"
	for manifest, objects := range r.folders {
		if !strings.HasPrefix(manifest, prefix) {
			continue
		}
		id := strings.Split(manifest, "/")[2]
		l := Leftover{Timeline: t.ID, Backup: id}
		switch b := r.inv.backup(t.ID, id); {
		case b != nil:
			unnamed, err := r.unnamed(ctx, t.ID, id, objects)
			if err != nil {
				return err
			}
			l.Kind = Unnamed
			l.add(unnamed)
		case slices.ContainsFunc(objects, func(o sinks.Object) bool { return o.Name == manifest }):
			continue // it went, or came, while this was read
		default:
			l.add(objects)
			if err := r.without(ctx, &l); err != nil {
				return err
			}
		}
		if len(l.Objects) > 0 {
			t.Leftovers = append(t.Leftovers, l)
		}
	}
	slices.SortFunc(t.Leftovers, func(a, b Leftover) int { return strings.Compare(a.Backup, b.Backup) })
	return nil
}

func (l *Leftover) add(objects []sinks.Object) {
	for _, o := range objects {
		l.Objects = append(l.Objects, o.Name)
		l.Bytes += o.Size
		l.Since = later(l.Since, o.ModTime)
		l.LockedUntil = later(l.LockedUntil, o.LockedUntil)
	}
}

// without says what objects without a manifest are.
func (r *reading) without(ctx context.Context, l *Leftover) error {
	name := repository.PrunedName(l.Timeline, l.Backup)
	record, is := r.records[name]
	switch {
	case is:
		l.Kind, l.Since = OfPruned, record.ModTime
		p, err := r.repo.ReadPruned(ctx, name)
		if err != nil && !errors.Is(err, sinks.ErrNotFound) && !errors.Is(err, repository.ErrAltered) {
			return err
		}
		i := slices.IndexFunc(r.inv.Pruned, func(o PrunedRecord) bool { return o.Timeline == l.Timeline && o.Backup == l.Backup })
		r.inv.Pruned[i].RaftIndex = p.RaftIndex
	case r.wasProved(l.Timeline, l.Backup):
		l.Kind = Suspect
	default:
		l.Kind = Interrupted
	}
	return nil
}

// wasProved says that a verdict knows a backup.
func (r *reading) wasProved(t repository.TimelineID, id string) bool {
	for _, e := range r.verdicts.Entries {
		if e.Verdict.Timeline == t && e.Verdict.Backup == id {
			return true
		}
	}
	return false
}

// unnamed are the objects beside a manifest that it does not name anywhere: also
// not in a field that only newer versions know.
func (r *reading) unnamed(ctx context.Context, t repository.TimelineID, id string, objects []sinks.Object) ([]sinks.Object, error) {
	manifest := repository.ManifestName(t, id)
	i := slices.IndexFunc(r.all.Manifests, func(m *snapshot.Manifest) bool { return m.Timeline == t && m.ID == id })
	if i < 0 {
		return nil, nil // it is damaged: nobody knows what it named
	}
	beside := slices.DeleteFunc(slices.Clone(objects), func(o sinks.Object) bool {
		return o.Name == manifest || o.Name == r.all.Manifests[i].Object.Name
	})
	if len(beside) == 0 {
		return nil, nil
	}
	var body any
	err := r.repo.ReadDocument(ctx, manifest, &body)
	switch {
	case errors.Is(err, sinks.ErrNotFound), errors.Is(err, repository.ErrAltered):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find out what %s names: %w", manifest, err)
	}
	folder := strings.TrimSuffix(manifest, "manifest.json")
	return slices.DeleteFunc(beside, func(o sinks.Object) bool {
		return mentions(body, o.Name) || mentions(body, strings.TrimPrefix(o.Name, folder))
	}), nil
}

// mentions says that a text stands somewhere in decoded JSON.
func mentions(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return v == text
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return mentions(one, text) })
	case map[string]any:
		for _, one := range v {
			if mentions(one, text) {
				return true
			}
		}
	}
	return false
}

// readLog adds what a timeline's log holds, as far as headers show.
func (r *reading) readLog(ctx context.Context, t *Timeline) error {
	log, err := segment.OpenLog(ctx, r.repo, t.ID, r.all.EncryptedSince[t.ID])
	if err != nil {
		return err
	}
	for _, s := range log.Coverage() {
		t.Coverage = append(t.Coverage, segment.Range{First: s.FirstIndex, Last: s.LastIndex})
	}
	for _, h := range log.Headers() {
		t.Segments = append(t.Segments, Segment{Name: h.Name(), First: h.FirstIndex, Last: h.LastIndex, Bytes: h.Size()})
		r.see(t, h.LastMark)
		if h.Level == 0 { // one without marks was read from a member that answered
			r.see(t, h.Cut)
		}
	}
	for _, d := range log.Damaged() {
		if errors.Is(d.Err, snapshot.ErrNewerFormat) {
			return d.Err
		}
		if n, err := repository.ParseSegmentName(d.Name); err == nil {
			t.Segments = append(t.Segments, Segment{Name: d.Name, First: n.First, Last: n.Last, Bytes: r.segments[d.Name].Size, Damaged: true})
		}
	}
	// What a merged segment replaces is not read, and goes with it.
	known := make(map[string]bool, len(t.Segments))
	for _, s := range t.Segments {
		known[s.Name] = true
	}
	for _, name := range log.Foreign() {
		known[name] = true // it neither counts nor goes
	}
	for name, o := range r.segments {
		n, err := repository.ParseSegmentName(name)
		if err != nil || n.Timeline != t.ID || known[name] {
			continue
		}
		t.Segments = append(t.Segments, Segment{Name: name, First: n.First, Last: n.Last, Bytes: o.Size})
	}
	t.setLast()
	t.Marks = log.Heartbeat()
	for _, m := range t.Marks {
		r.see(t, m.Time)
	}
	t.orderTimes(log.Headers(), r.now)
	t.Gaps, err = r.repo.Gaps(ctx, t.ID)
	return err
}

// orderTimes lets no backup be finished before a lower index was seen: the host
// that took it had a clock that was behind, and it would pass for one from before
// all that is promised. What was seen in the planner's future says nothing.
func (t *Timeline) orderTimes(headers []segment.Header, now time.Time) {
	type seen struct {
		index uint64
		at    time.Time
	}
	var all []seen
	for _, h := range headers {
		all = append(all, seen{h.LastIndex, h.LastMark})
	}
	for _, m := range t.Marks {
		all = append(all, seen{m.Index, m.Time})
	}
	for _, b := range t.Backups {
		if b.known() {
			all = append(all, seen{b.Index, b.Finished})
		}
	}
	slices.SortFunc(all, func(a, b seen) int { return cmp.Compare(a.index, b.index) })
	var last time.Time
	next := 0
	for i := range t.Backups { // by index
		b := &t.Backups[i]
		for ; next < len(all) && all[next].index < b.Index; next++ {
			if !all[next].at.After(now) {
				last = later(last, all[next].at)
			}
		}
		b.Finished = later(b.Finished, last)
	}
}

// setLast sets where segments end that were not read, and whose names do not
// hold it: before the next one that an archiver wrote. The last one stays without
// an end.
func (t *Timeline) setLast() {
	slices.SortFunc(t.Segments, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Name, b.Name))
	})
	for i := range t.Segments {
		s := &t.Segments[i]
		if s.Last > 0 {
			continue
		}
		for _, next := range t.Segments[i+1:] {
			if next.First > s.First {
				s.Last = next.First - 1
				break
			}
		}
	}
}

// useVerdicts finds out what each verdict is of use for.
func (r *reading) useVerdicts() {
	r.inv.Sound = len(r.verdicts.Findings)+len(r.all.Unread) == 0
	newer := map[string][]verdict.Verdict{} // by manifest
	for _, e := range slices.Backward(r.verdicts.Entries) {
		if e.Err != nil { // of a newer version: what it is of use for is not known
			r.inv.Sound = false
		}
		v := Verdict{Name: e.Name, Stored: r.stored[e.Name], Timeline: e.Verdict.Timeline, Backup: e.Verdict.Backup,
			Spare: slices.ContainsFunc(newer[e.Verdict.Manifest], func(n verdict.Verdict) bool { return saysAll(n, e.Verdict) })}
		if v.Stored.IsZero() {
			v.Stored = r.inv.Clock // since the listing
		}
		if e.Err == nil && (e.Verdict.Status == report.Passed || e.Verdict.Status == report.Unchecked) {
			newer[e.Verdict.Manifest] = append(newer[e.Verdict.Manifest], e.Verdict)
		}
		r.inv.Verdicts = append(r.inv.Verdicts, v)
	}
	slices.Reverse(r.inv.Verdicts)
}

// saysAll reports whether a newer verdict proves all that an older one on the same
// manifest did.
func saysAll(newer, older verdict.Verdict) bool {
	if older.Reached != "" && !newer.Reached.Includes(older.Reached) {
		return false
	}
	return older.Status != report.Damaged || newer.Overrules(older)
}
