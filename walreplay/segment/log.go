package segment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// parallelSmall is how many headers or documents are fetched at once: they are
// waited for, not transferred.
const parallelSmall = 32

// Log is the archived log of one timeline as it was listed: when it was
// opened, or when an object was found gone since. It may be used concurrently.
type Log struct {
	repo       *repository.Repository
	source     sinks.Sink // of segments: the repository's, or what was read of it
	timeline   repository.TimelineID
	identities []age.Identity
	byNames    bool // headers are read only where names do not show enough; under refreshing
	replaced   bool // byNames, and merged segments were left out; under refreshing

	refreshing sync.Mutex
	headers    map[string]listed // of the objects listed last, by name; under refreshing

	mu     sync.Mutex
	bodies map[repository.SegmentName]error // damage that only reading a body showed
	known  map[string]Header                // made known, or read, since the last listing
	since  *snapshot.Manifest               // what came after it is refused in the clear; nil: nothing is
	view   *view
}

// listed is what is known of a segment without its body.
type listed struct {
	header Header
	err    error // damage; nil when the header is good
}

// Damage is an object of the log that cannot be used.
type Damage struct {
	Name string
	// First and Last are the entries that it may hold, as far as names show: at level 0
	// those before the next segment there. 0 if it is no segment.
	First, Last uint64
	// Err is a *snapshot.DamagedError, or wraps snapshot.ErrNewerFormat.
	Err error
}

// MayHold reports whether one of the entries from first to last may be in it.
func (d Damage) MayHold(first, last uint64) bool {
	return d.First > 0 && d.First <= last && first <= d.Last
}

// OpenLog lists the log of timeline t and reads the headers of the segments that
// a reader needs, none of the bodies: merged ones, and of level 0 those that no
// merged one replaces. So requests grow with what is not merged yet, not with
// what is stored. identities are needed to read entries and marks of encrypted
// segments, and for nothing else. A timeline without a log is an empty Log, and
// no error; damaged objects are reported by Damaged.
//
// encrypted is the timeline's first full snapshot that is encrypted (see
// snapshot.Catalog.EncryptedSince): segments in the clear that hold what came after it
// are damage, a *snapshot.PlainError. With nil none are.
func OpenLog(ctx context.Context, repo *repository.Repository, t repository.TimelineID, encrypted *snapshot.Manifest, identities ...age.Identity) (*Log, error) {
	return (&Log{repo: repo, timeline: t, since: encrypted, identities: identities}).open(ctx)
}

// Headers reads the headers of all segments of timeline t that may hold entries from
// first to last, also of those that merged ones replace, ordered as those of a Log. What
// is damaged, or was written by a newer version, is left out.
func Headers(ctx context.Context, repo *repository.Repository, t repository.TimelineID, first, last uint64) ([]Header, error) {
	all, err := repo.Segments(ctx, t)
	if err != nil {
		return nil, err
	}
	var needed []repository.Segment
	for i, s := range all {
		end := s.Last
		if s.Level == 0 {
			end = lastByName(all, i)
		}
		if s.First <= last && first <= end {
			needed = append(needed, s)
		}
	}
	v, err := (&Log{repo: repo}).arranged(ctx, needed)
	if err != nil {
		return nil, err
	}
	return v.segments, nil
}

func (l *Log) open(ctx context.Context) (*Log, error) {
	l.source = l.repo.Sink()
	l.headers, l.bodies, l.known = map[string]listed{}, map[repository.SegmentName]error{}, map[string]Header{}
	return l, l.Refresh(ctx)
}

// Refresh lists anew, and reads the headers of what is new.
func (l *Log) Refresh(ctx context.Context) error {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	_, err := l.relist(ctx)
	return err
}

// RefusePlain is for a log that stays open: which segments in the clear are damage changes
// with what OpenLog calls encrypted. It lists anew where that changes something.
func (l *Log) RefusePlain(ctx context.Context, since *snapshot.Manifest) error {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	l.mu.Lock()
	was := l.since
	l.since = since
	v := l.view
	l.mu.Unlock()
	if was == since || was != nil && since != nil && was.ID == since.ID && was.Facts.RaftIndex == since.Facts.RaftIndex {
		return nil // each new catalogue has its own
	}
	if slices.ContainsFunc(v.segments, l.isPlain) || slices.ContainsFunc(v.damaged, func(d Damage) bool { return errors.As(d.Err, new(*snapshot.PlainError)) }) {
		_, err := l.relist(ctx)
		return err
	}
	return nil
}

// plain is why a segment is refused for not being encrypted.
func (l *Log) plain(h Header) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since == nil || h.Object.Encrypted() || h.LastIndex <= l.since.Facts.RaftIndex {
		return nil
	}
	return damaged(l.repo, h.Name(), -1, &snapshot.PlainError{Object: "segment " + h.Name(), Encrypted: l.since.ID})
}

// isPlain reports whether that is known of a segment.
func (l *Log) isPlain(h Header) bool { return h.isRead() && l.plain(h) != nil }

// refresh lists anew, unless that was done since the caller got old.
func (l *Log) refresh(ctx context.Context, old *view) (*view, error) {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	if v := l.current(); v != old {
		return v, nil
	}
	return l.relist(ctx)
}

// relist lists anew; under refreshing.
func (l *Log) relist(ctx context.Context) (*view, error) {
	l.mu.Lock()
	for name, h := range l.known {
		l.headers[name] = listed{header: h}
	}
	clear(l.known)
	l.mu.Unlock()
	merged, err := l.repo.MergedSegments(ctx, l.timeline)
	if err != nil {
		return nil, err
	}
	var v *view
	if l.byNames {
		if v, err = l.relistNames(ctx, merged); err != nil {
			return nil, err
		}
	}
	if v == nil {
		if v, err = l.relistHeaders(ctx, merged); err != nil {
			return nil, err
		}
	}
	if v.alive, err = l.repo.Marks(ctx, l.timeline); err != nil {
		return nil, err
	}
	if err := l.readGaps(ctx, v); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view = v
	return v, nil
}

// relistHeaders makes a view from the headers of merged segments, and of those of
// level 0 that none of them replaces. Under refreshing.
func (l *Log) relistHeaders(ctx context.Context, merged []repository.Segment) (*view, error) {
	headers, err := l.readHeaders(ctx, merged)
	if err != nil {
		return nil, err
	}
	maps.Copy(l.headers, headers)
	small, err := listSmall(ctx, l.repo, l.timeline, l.covered(headers))
	if err != nil {
		return nil, err
	}
	v, err := l.arranged(ctx, slices.Concat(merged, small))
	if err != nil || v.plain() {
		return v, err
	}
	// What joins two chains may be a segment that by its indexes alone is needless.
	if small, err = l.repo.SmallSegments(ctx, l.timeline, 0); err != nil {
		return nil, err
	}
	return l.arranged(ctx, slices.Concat(merged, small))
}

// arranged reads the headers of segments, and arranges them.
func (l *Log) arranged(ctx context.Context, segments []repository.Segment) (*view, error) {
	headers, err := l.readHeaders(ctx, segments)
	if err != nil {
		return nil, err
	}
	l.headers = headers
	v := &view{}
	for name, found := range headers {
		if errors.Is(found.err, repository.ErrUnsigned) {
			v.foreign = append(v.foreign, name) // it does not exist
			continue
		}
		if found.err == nil {
			found.err = l.plain(found.header)
		}
		if found.err != nil {
			v.damaged = append(v.damaged, Damage{Name: name, Err: found.err})
			continue
		}
		v.segments = append(v.segments, found.header)
	}
	v.arrange()
	return v, nil
}

// covered are the entries that merged segments hold, as far as these are not
// known to be damaged.
func (l *Log) covered(merged map[string]listed) []Range {
	var all []Range
	for _, m := range merged {
		if m.err == nil && !l.spoiled(m.header.name()) && !l.isPlain(m.header) {
			all = append(all, Range{m.header.FirstIndex, m.header.LastIndex})
		}
	}
	return united(all)
}

// readHeaders reads those that are not known yet. One that was deleted since it
// was listed is left out.
func (l *Log) readHeaders(ctx context.Context, segments []repository.Segment) (map[string]listed, error) {
	results := make([]*listed, len(segments))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for i, s := range segments {
		// Another size: it was cut short since, or stored anew.
		if known, ok := l.headers[s.String()]; ok && known.err == nil && known.header.Size() == s.Object.Size {
			results[i] = &known
			continue
		}
		group.Go(func() error {
			h, err := readListed(groupCtx, l.repo, s)
			switch {
			case errors.Is(err, sinks.ErrNotFound):
				return nil
			case err != nil && !unusable(err):
				return err
			}
			results[i] = &listed{h, err}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := make(map[string]listed, len(segments))
	for i, s := range segments {
		if results[i] != nil {
			all[s.String()] = *results[i]
		}
	}
	return all, nil
}

// readListed reads a header, and holds it against the size in the listing: an
// object that was cut short needs no reading to be found damaged.
func readListed(ctx context.Context, repo *repository.Repository, listed repository.Segment) (Header, error) {
	h, err := ReadHeader(ctx, repo, listed.String())
	if err == nil && h.Size() != listed.Object.Size {
		err = damaged(repo, listed.String(), -1, fmt.Errorf("it has %d bytes, its header says %d", listed.Object.Size, h.Size()))
	}
	return h, err
}

func (l *Log) readGaps(ctx context.Context, v *view) error {
	names, err := l.repo.Gaps(ctx, l.timeline)
	if err != nil {
		return err
	}
	records, errs := make([]GapRecord, len(names)), make([]error, len(names))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for i, n := range names {
		group.Go(func() error {
			records[i], errs[i] = ReadGap(groupCtx, l.repo, n)
			if errs[i] == nil || unusable(errs[i]) || errors.Is(errs[i], sinks.ErrNotFound) {
				return nil
			}
			return errs[i]
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, n := range names {
		switch {
		case errs[i] == nil:
			v.records = append(v.records, records[i])
		case unusable(errs[i]):
			v.damaged = append(v.damaged, Damage{Name: n.String(), Err: errs[i]})
		}
	}
	return nil
}

// unusable says what makes an object useless and hides nothing else.
func unusable(err error) bool {
	return snapshot.IsDamaged(err) || errors.Is(err, snapshot.ErrNewerFormat)
}

// current is what is listed now.
func (l *Log) current() *view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view
}

// spoil remembers a segment whose body was found damaged.
func (l *Log) spoil(name repository.SegmentName, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies[name] = err
}

// spoiled reports whether that is known of a segment.
func (l *Log) spoiled(name repository.SegmentName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies[name] != nil
}

// Know takes the header of a segment that the caller has stored, or read in the
// repository: the next listing does not read it. It does not wait for one that
// is under way. A nil Log takes nothing.
func (l *Log) Know(h Header) {
	if l == nil || h.Timeline != l.timeline {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[h.Name()] = h
}

// forget makes refresh read a segment's header anew, should it still be there.
func (l *Log) forget(name string) {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	delete(l.headers, name)
}

// Timeline is whose log it is.
func (l *Log) Timeline() repository.TimelineID { return l.timeline }

// Headers are those of the segments that OpenLog describes, where they are good,
// ordered by first index, then last. Of a log that OpenNames opened, those that were
// not read have no Format, and only what names and neighbours show: level, first and
// last index, the stored size, and an estimate of the raw one.
func (l *Log) Headers() []Header { return slices.Clone(l.current().segments) }

// Heartbeat are the names of the alive marks, ordered by index, then time.
func (l *Log) Heartbeat() []repository.MarkName { return slices.Clone(l.current().alive) }

// Foreign are the names of segments whose headers were read, and that nobody who is
// trusted signed. They are not among the others.
func (l *Log) Foreign() []string { return slices.Clone(l.current().foreign) }

// Damaged are the objects that cannot be used: by their headers, and as far
// as bodies were read, by these.
func (l *Log) Damaged() []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.view.damaged)
	for name, err := range l.bodies {
		if !slices.ContainsFunc(all, func(d Damage) bool { return d.Name == name.String() }) {
			all = append(all, Damage{Name: name.String(), Err: err})
		}
	}
	slices.SortFunc(all, func(a, b Damage) int { return strings.Compare(a.Name, b.Name) })
	l.view.place(all)
	return all
}

// place fills in which entries damaged segments may hold.
func (v *view) place(all []Damage) {
	var small []uint64 // where segments of level 0 begin
	for _, h := range v.segments {
		if h.Level == 0 {
			small = append(small, h.FirstIndex)
		}
	}
	names := make([]repository.SegmentName, len(all))
	for i, d := range all {
		names[i], _ = repository.ParseSegmentName(d.Name) // of another object: zero
		if names[i].Level == 0 {
			small = append(small, names[i].First)
		}
	}
	slices.Sort(small)
	for i, n := range names {
		if n.Level == 0 && n.First > 0 {
			n.Last = math.MaxUint64
			if next, _ := slices.BinarySearch(small, n.First+1); next < len(small) {
				n.Last = small[next] - 1
			}
		}
		all[i].First, all[i].Last = n.First, n.Last
	}
}
