package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/segment"
)

// logCheck is the checksum rung of the archived log of one timeline, from an
// index on.
type logCheck struct {
	*examination
	check *report.Check
	part  logPart

	log     *segment.Log // as it was listed last
	headers []segment.Header
	chain   *chainMap
	read    map[string]bool // segments that need no more reading
	whole   map[string]bool // of these, those that were read and are good
	sealed  int             // of these, those that could not be decrypted
	marks   int
	// alive are the entries that marks name, each with one of these marks.
	alive map[markedEntry]string
	// letGo is the index up to which records say that the log was let go.
	letGo uint64
	// now are the timeline's backups as they were read behind the log; nil before.
	now *snapshot.Catalog
}

// checkLog looks at a timeline's log, where it has one.
func (h *history) checkLog(ctx context.Context, part logPart) error {
	log, err := segment.OpenLog(ctx, h.repo, part.timeline, h.Identities...)
	if err != nil {
		if err := h.failed(ctx, logName(part.timeline), err); err != nil {
			return err
		}
		return h.replayLog(ctx, part, report.Unchecked)
	}
	l := &logCheck{examination: h.examination, part: part, log: log, read: map[string]bool{}, whole: map[string]bool{}, alive: map[markedEntry]string{}}
	if len(log.Headers()) == 0 && len(log.Damaged()) == 0 && len(log.Alive()) == 0 && !l.wasThere() {
		return nil
	}
	c, err := h.check(ctx, report.Checksum, logName(part.timeline), func(c *report.Check) error {
		l.check = c
		return l.do(ctx)
	})
	if err != nil {
		return err
	}
	return h.replayLog(ctx, part, c.Status)
}

// rounds is how often a log is listed anew where segments vanish while they are
// read: merging replaces some once an hour.
const rounds = 3

func (l *logCheck) do(ctx context.Context) error {
	l.checkMarks(ctx)
	for round := 0; ; round++ {
		gone, err := l.readAll(ctx)
		if err != nil {
			return err
		}
		if len(gone) == 0 {
			break
		}
		if round == rounds {
			for _, name := range gone {
				took(l.check, report.KindMissing, name, sinks.ErrNotFound)
				l.sample.forget(name)
			}
			break
		}
		again, err := segment.OpenLog(ctx, l.repo, l.part.timeline, l.Identities...)
		if err != nil {
			unchecked(l.check, fmt.Errorf("%d segments are gone since they were listed: %w", len(gone), err))
			break
		}
		l.log = again
	}
	l.damagedHeaders(ctx)
	l.chain.findForks(l.check)
	l.judgeHoles(ctx)
	l.checkTerms()
	l.checkMarked()
	l.checkBranches()
	l.checkProved()
	// Segments and marks were read in any order.
	slices.SortStableFunc(l.check.Findings, func(a, b report.Finding) int { return cmp.Compare(a.Object, b.Object) })
	l.say()
	l.bind()
	return nil
}

// inPart are the headers of the part that is looked at.
func (l *logCheck) inPart() []segment.Header {
	return slices.DeleteFunc(l.log.Headers(), func(h segment.Header) bool { return h.LastIndex < l.part.from })
}

// damagedHeaders reports what cannot be used by its header or its size, and gap
// records.
func (l *logCheck) damagedHeaders(ctx context.Context) {
	for _, d := range l.log.Damaged() {
		kind := report.KindMark // a gap's record
		if n, err := repository.ParseSegmentName(d.Name); err == nil {
			if l.lastOf(n) < l.part.from {
				continue
			}
			kind = report.KindSegment
			// A header that can be read has another size than the object.
			if _, err := segment.ReadHeader(ctx, l.repo.Sink(), d.Name); err == nil {
				kind = report.KindSize
			}
		}
		took(l.check, kind, d.Name, d.Err)
	}
}

// lastOf is up to where a segment can reach whose header cannot be read: its name
// tells, or at level 0 where the next one begins.
func (l *logCheck) lastOf(n repository.SegmentName) uint64 {
	if n.Level > 0 {
		return n.Last
	}
	last := uint64(math.MaxUint64)
	for _, h := range l.log.Headers() {
		if h.Level == 0 && h.FirstIndex > n.First {
			last = min(last, h.FirstIndex-1)
		}
	}
	return last
}

// say tells what was compared.
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

// bind tells the verdict what was proved.
func (l *logCheck) bind() {
	if len(l.check.Findings) > 0 || len(l.whole) == 0 {
		return
	}
	var stretches []verdict.Stretch
	for _, s := range l.log.Spans() {
		stretches = append(stretches, l.readOf(s)...)
	}
	if len(stretches) > 0 {
		l.seen = append(l.seen, verdict.Seen{Timeline: l.part.timeline, Log: stretches})
	}
}

// readOf are the stretches of a span whose segments were all read: of a sample, or
// from an index on, they are parts of it.
func (l *logCheck) readOf(s segment.Span) []verdict.Stretch {
	var all []verdict.Stretch
	read := slices.DeleteFunc(slices.Clone(l.headers), func(h segment.Header) bool {
		return !l.whole[h.Name()] || h.FirstIndex < s.FirstIndex || h.LastIndex > s.LastIndex
	})
	slices.SortFunc(read, func(a, b segment.Header) int {
		return cmp.Or(cmp.Compare(a.FirstIndex, b.FirstIndex), cmp.Compare(a.LastIndex, b.LastIndex))
	})
	for _, h := range read {
		if n := len(all); n == 0 || h.FirstIndex > all[n-1].Last+1 {
			all = append(all, verdict.Stretch{First: h.FirstIndex})
		}
		one := &all[len(all)-1]
		one.Objects++
		one.Bytes += h.Size()
		if h.LastIndex >= one.Last {
			one.Last, one.After = h.LastIndex, h.After
		}
	}
	return all
}

// isSealed tells an object that no identity opened.
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
