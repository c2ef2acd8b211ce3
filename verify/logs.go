package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/segment"
)

// logCheck is the checksum level of the archived log of one timeline, from an
// index on.
type logCheck struct {
	*examination
	check *report.Check
	part  logPart

	log       *segment.Log // as it was listed last
	headers   []segment.Header
	chain     *chainMap
	read      map[string]bool // segments that need no more reading
	whole     map[string]bool // of these, those that were read and are good
	good      int64           // the bytes of these
	sealed    int             // of these, those that could not be decrypted
	decrypted int             // of these, those that were
	marks     int
	// alive are the entries that marks name, each with one of these marks.
	alive map[markedEntry]string
	// now are the timeline's backups as they were read behind the log; nil before.
	now *snapshot.Catalog
}

// checkLog looks at a timeline's log, where it has one.
func (h *history) checkLog(ctx context.Context, part logPart) error {
	log, err := h.openLog(ctx, part.timeline)
	if err != nil {
		if err := h.failed(ctx, logName(part.timeline), err); err != nil {
			return err
		}
		return h.replayLog(ctx, part, report.Unchecked)
	}
	if len(log.Headers()) == 0 && len(log.Damaged()) == 0 && len(log.Heartbeat()) == 0 {
		return nil
	}
	l := &logCheck{examination: h.examination, part: part, log: log, read: map[string]bool{}, whole: map[string]bool{}, alive: map[markedEntry]string{}}
	c, err := h.check(ctx, report.Checksum, logName(part.timeline), func(c *report.Check) error {
		l.check = c
		return l.do(ctx)
	})
	if err != nil {
		return err
	}
	return h.replayLog(ctx, part, c.Status)
}

// openLog opens a log of which all segments are to be read, with their headers.
func (e *examination) openLog(ctx context.Context, t repository.TimelineID) (*segment.Log, error) {
	encrypted := e.catalog.EncryptedSince[t]
	log, err := segment.OpenNames(ctx, e.repo, t, encrypted, e.Identities...)
	if err == nil && log.HidesReplaced() {
		log, err = segment.OpenLog(ctx, e.repo, t, encrypted, e.Identities...)
	}
	return log, err
}

// rounds is how often a log is listed anew where segments vanish while they are
// read: merging replaces some once an hour.
const rounds = 3

func (l *logCheck) do(ctx context.Context) error {
	l.checkMarks(ctx)
	for round := 0; ; round++ {
		gone, asNamed, err := l.readAll(ctx)
		if err != nil {
			return err
		}
		if len(gone) == 0 && asNamed {
			break
		}
		if round == rounds {
			for _, name := range gone {
				took(l.check, report.KindMissing, name, sinks.ErrNotFound)
			}
			break
		}
		again, err := segment.OpenLog(ctx, l.repo, l.part.timeline, l.catalog.EncryptedSince[l.part.timeline], l.Identities...)
		if err != nil {
			unchecked(l.check, fmt.Errorf("the log could not be listed anew: %w", err))
			break
		}
		if slices.ContainsFunc(l.headers, func(h segment.Header) bool { return h.Format == 0 }) {
			l.startOver()
		}
		l.log = again
	}
	l.damagedHeaders(ctx)
	l.chain.findForks(l.check)
	l.judgeHoles(ctx)
	l.checkTerms()
	l.checkRevisions()
	l.checkMarked()
	l.checkBranches()
	// Segments and marks were read in any order.
	slices.SortStableFunc(l.check.Findings, func(a, b report.Finding) int { return cmp.Compare(a.Object, b.Object) })
	l.say()
	return nil
}

// startOver forgets what was read of good segments while only names were known: those
// that the names left out are compared with them, and of that nothing was kept.
func (l *logCheck) startOver() {
	for name := range l.whole {
		delete(l.read, name)
	}
	l.check.Bytes -= l.good
	l.examination.sealed.Add(-int64(l.sealed))
	l.opened.Add(-int64(l.decrypted))
	l.chain, l.whole, l.sealed, l.decrypted, l.good = nil, map[string]bool{}, 0, 0, 0
}

// of are the headers of the part of a log.
func (p logPart) of(log *segment.Log) []segment.Header {
	return slices.DeleteFunc(log.Headers(), func(h segment.Header) bool { return h.LastIndex < p.from })
}

// damagedHeaders reports what cannot be used by its header or its size, and gap
// records.
func (l *logCheck) damagedHeaders(ctx context.Context) {
	for _, d := range l.log.Damaged() {
		kind := report.KindMark // a gap's record
		if d.First > 0 {
			if d.Last < l.part.from {
				continue
			}
			kind = report.KindSegment
			// A header that can be read has another size than the object.
			if _, err := segment.ReadHeader(ctx, l.repo, d.Name); err == nil && !errors.As(d.Err, new(*snapshot.PlainError)) {
				kind = report.KindSize
			}
		}
		took(l.check, kind, d.Name, d.Err)
	}
}

// say says what was compared.
func (l *logCheck) say() {
	l.check.Compared = fmt.Sprintf("%d of %d segments of the log with their own headers: name, sizes, SHA-256 stored and raw, every entry, its place and term, the chain over them, and the marks; all segments with each other, by chain and by entries; the log with the range that the full snapshots and gap records say it has; %d marks with their own SHA-256, and with the entries that they name",
		len(l.whole), len(l.headers), l.marks)
	if l.sealed > 0 {
		l.check.Compared += fmt.Sprintf(". %d segments are encrypted and were not decrypted: only their stored bytes were compared", l.sealed)
	}
	if l.part.from > 0 {
		l.check.Compared += fmt.Sprintf(". Looked at from raft index %d on", l.part.from)
	}
}

// isSealed reports whether an error is of an object that no identity opened.
func isSealed(err error) bool {
	var identity *codec.IdentityError
	return errors.As(err, &identity)
}

// bases are the timeline's full snapshots.
func (l *logCheck) bases() []*snapshot.Manifest {
	var all []*snapshot.Manifest
	c := l.catalog
	if l.now != nil {
		c = l.now
	}
	for _, m := range c.Manifests {
		if m.Timeline == l.part.timeline {
			all = append(all, m)
		}
	}
	return all
}

// What is read of a log at once: enough to hide the round trips, and no more raw
// bytes than a few segments have. One that is larger than all is read alone.
const (
	parallelSegments = 8
	segmentBytes     = 4 * segment.MaxRaw
)

// readAll reads the segments that were not read yet. It gives those that are gone since
// they were listed, and whether those of which only names were known are what names
// said.
func (l *logCheck) readAll(ctx context.Context) (gone []string, asNamed bool, err error) {
	l.headers = l.part.of(l.log)
	old := l.chain
	l.chain = newChainMap(l.headers, l.interesting())
	if old != nil {
		l.chain.take(old)
	}
	var mu sync.Mutex
	var done, total int64
	var unread []segment.Header
	for _, h := range l.headers {
		if name := h.Name(); !l.read[name] {
			unread = append(unread, h)
			total += h.Size()
		}
	}
	room := semaphore.NewWeighted(segmentBytes)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSegments)
	byNames := slices.ContainsFunc(l.headers, func(h segment.Header) bool { return h.Format == 0 })
	asNamed = true
	for _, h := range unread {
		name := h.Name()
		weight := min(max(h.Object.RawSize, 0), segmentBytes)
		if err := room.Acquire(groupCtx, weight); err != nil {
			break // ctx has ended: Wait says why
		}
		group.Go(func() error {
			defer room.Release(weight)
			listed := h
			h, seen, sealed, err := l.readSegment(groupCtx, h)
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, sinks.ErrNotFound) {
				gone = append(gone, name)
				return nil
			}
			if listed.Format == 0 && err != nil {
				asNamed = false // it is read again, when all headers were
				return nil
			}
			l.read[name] = true
			done += h.Size()
			l.check.Bytes += h.Size()
			l.Progress("read the log", done, total)
			if err != nil {
				took(l.check, report.KindSegment, name, err)
				return nil
			}
			l.whole[name] = true
			l.good += h.Size()
			switch {
			case sealed:
				l.sealed++
				l.examination.sealed.Add(1)
			case h.Object.Encrypted():
				l.decrypted++
				l.opened.Add(1)
			}
			l.chain.add(h, seen)
			return nil
		})
	}
	err = group.Wait()
	for i := 1; byNames && i < len(l.headers); i++ {
		a, b := l.headers[i-1], l.headers[i] // as they were read
		asNamed = asNamed && (a.LastIndex+1 != b.FirstIndex || a.GoesOn(b))
	}
	return gone, asNamed, err
}

// readSegment reads one segment and keeps of it what it has in common with
// others. Where it cannot be decrypted its stored bytes are compared.
func (l *logCheck) readSegment(ctx context.Context, listed segment.Header) (h segment.Header, seen within, sealed bool, err error) {
	if listed.Format == 0 {
		h, batch, err := l.log.Read(ctx, listed)
		if isSealed(err) {
			switch h, err = segment.ReadHeader(ctx, l.repo, listed.Name()); {
			case err == nil && h.LastIndex != listed.LastIndex:
				err = segment.ErrNotAsNamed
			case err == nil:
				err = l.readSealed(ctx, h)
			}
			return h, within{}, true, err
		}
		if err != nil {
			return listed, within{}, false, err
		}
		return h, l.chain.look(h, batch.Entries), false, nil
	}
	h, batch, err := segment.Read(ctx, l.repo, listed.Name(), l.Identities...)
	switch {
	case isSealed(err):
		return listed, within{}, true, l.readSealed(ctx, listed)
	case err != nil:
		return listed, within{}, false, err
	case h.Before != listed.Before || h.After != listed.After || h.LastIndex != listed.LastIndex:
		return listed, within{}, false, &snapshot.DamagedError{Object: h.Name(), Offset: -1, Err: errors.New("it was replaced while it was read")}
	}
	return h, l.chain.look(h, batch.Entries), false, nil
}

// readSealed compares the bytes behind the header with it.
func (l *logCheck) readSealed(ctx context.Context, h segment.Header) error {
	r, err := l.repo.Sink().Open(ctx, h.Name(), segment.HeaderSize, -1)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read %s in %s: %w", h.Name(), l.repo, err)
	}
	return storedAs(h.Name(), h.Object, n, sum)
}

// interesting are indexes at which the entry's term, or the chain's value, has to
// be known.
func (l *logCheck) interesting() []uint64 {
	var all []uint64
	for _, m := range l.bases() {
		all = append(all, m.Facts.RaftIndex)
	}
	for _, n := range l.log.Heartbeat() {
		all = append(all, n.Index)
	}
	for _, t := range l.catalog.Timelines {
		if t.Parent != nil && t.Parent.Timeline == l.part.timeline {
			all = append(all, t.Parent.RaftIndex)
		}
	}
	return all
}

// parallelMarks is how many marks are fetched at once: they are waited for, not
// transferred.
const parallelMarks = 32

// checkMarks reads the alive marks of the part that is looked at. What they name
// is compared once the log was read.
func (l *logCheck) checkMarks(ctx context.Context) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelMarks)
	for _, n := range l.log.Heartbeat() {
		if n.Index < l.part.from {
			continue
		}
		group.Go(func() error {
			a, err := segment.ReadMark(ctx, l.repo, n)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sinks.ErrNotFound): // thinned out, or pruned, meanwhile
			case err != nil:
				took(l.check, report.KindMark, n.String(), err)
			default:
				l.marks++
				entry := markedEntry{a.Index, a.Term}
				if known, ok := l.alive[entry]; !ok || n.String() < known {
					l.alive[entry] = n.String()
				}
			}
			return nil
		})
	}
	_ = group.Wait() // each error was taken
}

// markedEntry is an entry as a mark names it.
type markedEntry struct{ index, term uint64 }

// cannotReplay reports whether the level replay does not apply to a backup: its
// timeline never had a log. That is no proof that failed, and the level above can be
// reached without. If there is any sign of a log that does not do, the check says why.
func (h *history) cannotReplay(ctx context.Context) bool {
	if h.hadLog == nil {
		had := h.logIn(ctx, h.id)
		h.hadLog = &had
	}
	if *h.hadLog {
		return false
	}
	h.note("the replay level needs an archived log: none of timeline %s was ever archived ('requorum agent' does it), so that level was left out; looked at: %s", h.id, h.otherLevels())
	return true
}

// lostBefore reports whether the log has, or may have, a gap before m: then it is not
// only too early to replay it.
func (h *history) lostBefore(ctx context.Context, m *snapshot.Manifest) bool {
	log, err := segment.OpenNames(ctx, h.repo, h.id, nil, h.Identities...)
	return err != nil || slices.ContainsFunc(log.Gaps(), func(g segment.Gap) bool { return g.After < m.Facts.RaftIndex })
}

// logIn reports whether there is, or may be, any object of a log in a timeline.
func (e *examination) logIn(ctx context.Context, t repository.TimelineID) bool {
	if all, err := e.repo.Segments(ctx, t); err != nil || len(all) > 0 {
		return true
	}
	log, err := segment.OpenNames(ctx, e.repo, t, nil, e.Identities...)
	return err != nil || len(log.Headers())+len(log.Damaged())+len(log.Heartbeat())+len(log.Gaps()) > 0
}

// otherLevels names those that were asked for, but for the replay.
func (r *run) otherLevels() string {
	var names []string
	for _, level := range report.Levels() {
		if r.Level.Includes(level) && level != report.Replay {
			names = append(names, string(level))
		}
	}
	return strings.Join(names, ", ")
}
