package segment

import (
	"context"
	"errors"
	"fmt"
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
	timeline   repository.TimelineID
	identities []age.Identity

	refreshing sync.Mutex
	headers    map[string]listed // of the objects listed last, by name; under refreshing

	mu     sync.Mutex
	bodies map[repository.SegmentName]error // damage that only reading a body showed
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
	// Err is a *snapshot.DamagedError, or wraps snapshot.ErrNewerFormat.
	Err error
}

// OpenLog lists the log of timeline t and reads all segments' headers, none of
// the bodies. identities are needed to read entries and marks of encrypted
// segments, and for nothing else. A timeline without a log is an empty Log, and
// no error; damaged objects are told by Damaged.
func OpenLog(ctx context.Context, repo *repository.Repository, t repository.TimelineID, identities ...age.Identity) (*Log, error) {
	l := &Log{repo: repo, timeline: t, identities: identities, headers: map[string]listed{}, bodies: map[repository.SegmentName]error{}}
	_, err := l.refresh(ctx, nil)
	return l, err
}

// Refresh lists anew, and reads the headers of what is new.
func (l *Log) Refresh(ctx context.Context) error {
	_, err := l.refresh(ctx, l.current())
	return err
}

// refresh lists anew, unless that was done since the caller got old.
func (l *Log) refresh(ctx context.Context, old *view) (*view, error) {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	if v := l.current(); v != old {
		return v, nil
	}
	segments, err := l.repo.Segments(ctx, l.timeline)
	if err != nil {
		return nil, err
	}
	if l.headers, err = l.readHeaders(ctx, segments); err != nil {
		return nil, err
	}
	v := &view{}
	if v.alive, err = l.repo.Marks(ctx, l.timeline); err != nil {
		return nil, err
	}
	if err := l.readGaps(ctx, v); err != nil {
		return nil, err
	}
	for name, found := range l.headers {
		if found.err != nil {
			v.damaged = append(v.damaged, Damage{name, found.err})
			continue
		}
		v.segments = append(v.segments, found.header)
	}
	v.arrange()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view = v
	return v, nil
}

// readHeaders reads those that are not known yet. One that was deleted since it
// was listed is left out.
func (l *Log) readHeaders(ctx context.Context, segments []repository.Segment) (map[string]listed, error) {
	results := make([]*listed, len(segments))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for i, s := range segments {
		if known, ok := l.headers[s.String()]; ok {
			results[i] = &known
			continue
		}
		group.Go(func() error {
			h, err := readListed(groupCtx, l.repo.Sink(), s)
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
func readListed(ctx context.Context, s sinks.Sink, listed repository.Segment) (Header, error) {
	h, err := ReadHeader(ctx, s, listed.String())
	if err == nil && h.Size() != listed.Object.Size {
		err = damaged(s, listed.String(), -1, fmt.Errorf("it has %d bytes, its header says %d", listed.Object.Size, h.Size()))
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
			v.damaged = append(v.damaged, Damage{n.String(), errs[i]})
		}
	}
	return nil
}

// unusable tells what makes an object useless and hides nothing else.
func unusable(err error) bool { return isDamage(err) || errors.Is(err, snapshot.ErrNewerFormat) }

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

// spoiled tells whether that is known of a segment.
func (l *Log) spoiled(name repository.SegmentName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies[name] != nil
}

// forget makes refresh read a segment's header anew, should it still be there.
func (l *Log) forget(name string) {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	delete(l.headers, name)
}

// Timeline is whose log it is.
func (l *Log) Timeline() repository.TimelineID { return l.timeline }

// Headers are those of all segments whose header is good, ordered by first
// index, then last.
func (l *Log) Headers() []Header { return slices.Clone(l.current().segments) }

// Alive are the names of the alive marks, ordered by index, then time.
func (l *Log) Alive() []repository.MarkName { return slices.Clone(l.current().alive) }

// Damaged are the objects that cannot be used: by their headers, and as far
// as bodies were read, by these.
func (l *Log) Damaged() []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.view.damaged)
	for name, err := range l.bodies {
		if !slices.ContainsFunc(all, func(d Damage) bool { return d.Name == name.String() }) {
			all = append(all, Damage{name.String(), err})
		}
	}
	slices.SortFunc(all, func(a, b Damage) int { return strings.Compare(a.Name, b.Name) })
	return all
}
