package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// queue holds what is committed and not durable in the repository, nor in the
// spool.
type queue struct {
	entries  []raftlog.Entry // ascending; a gap in a member's log is one here
	arrivals []arrival
	marks    []raftlog.Mark // of entries that are there, or will be, or of the one before
	hints    []hint
	bytes    int64
}

// arrival: the entries up to last came at that time, by the monotonic clock.
type arrival struct {
	last uint64
	time time.Time
}

// hint: the revision was reached at or before index.
type hint struct {
	revision int64
	index    uint64
}

// hintLimit bounds marks and hints while nothing can be cut.
const hintLimit = 4096

func (q *queue) add(entries []raftlog.Entry, now time.Time) {
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		q.bytes += int64(e.Size())
	}
	q.entries = append(q.entries, entries...)
	q.arrivals = append(q.arrivals, arrival{entries[len(entries)-1].Index, now})
}

func (q *queue) empty() bool { return len(q.entries) == 0 }

func (q *queue) first() uint64 {
	if q.empty() {
		return 0
	}
	return q.entries[0].Index
}

func (q *queue) last() uint64 {
	if q.empty() {
		return 0
	}
	return q.entries[len(q.entries)-1].Index
}

// oldest is when the first entry came.
func (q *queue) oldest() time.Time {
	if len(q.arrivals) == 0 {
		return time.Time{}
	}
	return q.arrivals[0].time
}

// run is the beginning of the queue up to the first gap, of about limit
// bytes: at least one entry where there are any.
func (q *queue) run(limit int64) []raftlog.Entry {
	size := int64(0)
	for i, e := range q.entries {
		size += int64(e.Size())
		if i > 0 && (e.Index != q.entries[i-1].Index+1 || size > limit) {
			return q.entries[:i]
		}
	}
	return q.entries
}

// batch is a run with its marks, and the highest revision it is known to reach.
func (q *queue) batch(limit int64) (segment.Batch, int64) {
	b := segment.Batch{Entries: q.run(limit)}
	if len(b.Entries) == 0 {
		return b, 0
	}
	first, last := b.Entries[0].Index, b.Entries[len(b.Entries)-1].Index
	for _, m := range q.marks {
		switch {
		case m.Index == first-1 && m.Term <= b.Entries[0].Term:
		case first <= m.Index && m.Index <= last && b.Entries[m.Index-first].Term == m.Term:
		default:
			continue
		}
		b.Marks = append(b.Marks, m)
	}
	revision := int64(0)
	for _, h := range q.hints {
		if h.index <= last {
			revision = max(revision, h.revision)
		}
	}
	return b, revision
}

// drop forgets all up to index through.
func (q *queue) drop(through uint64) {
	n := 0
	for n < len(q.entries) && q.entries[n].Index <= through {
		q.bytes -= int64(q.entries[n].Size())
		n++
	}
	if n == len(q.entries) {
		q.entries = nil // releases the memory as well
	} else {
		q.entries = q.entries[n:]
	}
	for len(q.arrivals) > 0 && q.arrivals[0].last <= through {
		q.arrivals = q.arrivals[1:]
	}
	for len(q.marks) > 0 && q.marks[0].Index <= through {
		q.marks = q.marks[1:]
	}
	// The last hint that is passed stays: it is the best for what comes next.
	for len(q.hints) > 1 && q.hints[1].index <= through {
		q.hints = q.hints[1:]
	}
}

// sum is the chain's value after index last, begun with before at index first;
// not ok where the queue does not hold them all.
func (q *queue) sum(before raftlog.Sum, first, last uint64) (raftlog.Sum, bool) {
	if q.empty() || first < q.first() {
		return before, false
	}
	want := first
	for _, e := range q.entries {
		if e.Index < first {
			continue
		}
		if e.Index != want {
			return before, false
		}
		before = before.Next(e)
		if want == last {
			return before, true
		}
		want++
	}
	return before, false
}

// outbox is what this archiver has captured, from the archive's end on: first what is
// spooled, then the queue.
//
// Between end and captured is the backlog, in the spool; the queue comes behind captured.
// Neither moves back within a session. What is next to be stored begins behind end. It
// continues the chain if joined; else it begins one, and that is a gap, unless the
// archive is fresh.
type outbox struct {
	*base
	timeline repository.TimelineID
	end      point // of the archive
	captured point // of the archive and what is spooled behind it: what is in memory comes after it
	joined   bool  // the log was compared up to captured, so the chain goes on
	fresh    bool  // there is no log yet that could be joined to
	target   uint64

	queue        queue
	spooledSince time.Time    // when the first entry in the backlog came
	advanced     time.Time    // when end moved last, as seen from here
	seen         *observation // the last that agreed with the log
	marked       observation  // the last that became a mark
	hinted       observation
	alive        time.Time
	sign         *observation // the next mark of a cluster that is not quiet, see signDue

	ahead      *segment.Header // stored by another archiver; the member's log is not there yet
	waiting    waiting         // for the log to come to ahead
	crossing   *Gap            // of the segment behind it whose put is under way
	branched   *Gap            // of a timeline that has just been opened
	otherChain bool            // what is spooled continues another chain than the archive's end
	skipped    uint64          // the name of level 0 that begins there is of a damaged segment
}

// nextIndex is the index that the next segment begins with.
func (b *outbox) nextIndex() uint64 { return b.captured.index + 1 }

// keep moves what is committed to the spool, where the repository does not take
// it in time.
func (s *session) keep(ctx context.Context, now time.Time) error {
	s.bound(now)
	stuck := s.busy != nil && now.Sub(s.busySince) > s.spoolAfter()
	if s.away.IsZero() && !stuck && !s.backlog() || s.beyondGap() || s.timeline.N == 0 {
		return nil
	}
	if now.Before(s.spaceAt) {
		return nil
	}
	for !s.queue.empty() && (now.Sub(s.queue.oldest()) > s.spoolAfter() || s.queue.bytes >= max(2*s.Size, MaxSize/2)) {
		if s.beyondGap() {
			return nil
		}
		if kept, err := s.spoolNext(ctx); err != nil || !kept {
			return err
		}
	}
	return nil
}

// spoolNext moves the next segment to the spool, unless that is full. A segment
// whose put is under way goes there with the same entries, so that it does not matter
// what becomes of the put.
func (s *session) spoolNext(ctx context.Context) (bool, error) {
	c := s.inFlight
	if c == nil || c.first() != s.nextIndex() {
		c = s.cutNext()
	}
	h, object, err := segment.Encode(ctx, c.timeline, c.before, c.chainStart, c.batch, c.meta, segment.Options{Tool: s.Tool})
	if err != nil {
		return false, err
	}
	if s.spool.bytes+s.log.Pinned()+h.Size() > s.SpoolLimit {
		s.boundReached() // what is not released stays in the member's log, for as long as it does
		if !s.unbound {
			s.spaceAt = time.Now().Add(spaceAgain)
			return false, nil
		}
	}
	if err := s.spool.add(h, object); err != nil {
		return false, s.spoolWritten(err)
	}
	if !s.backlog() {
		s.spooledSince = c.oldest
	}
	s.captured, s.joined, s.fresh = endOf(h), true, false
	s.queue.drop(h.LastIndex)
	if !s.away.IsZero() {
		s.role = Spooling
	}
	return true, nil
}

// How long a spool that was full is shown, unless it is found full again. What is
// written in any case, the position, is written more often than emptyFor.
const (
	fullFor  = time.Minute
	emptyFor = savePositionEvery + 5*time.Second
)

// bound keeps the spool and the pinned files below their limit. What is let go
// of is lost here; another member's archiver may hold it.
func (s *session) bound(now time.Time) {
	used := s.spool.bytes + s.log.Pinned()
	if used <= s.SpoolLimit {
		// Not found full for a while: a short one where it is empty and not needed.
		idle := used == 0 && s.away.IsZero() && s.busy == nil
		if full := now.Sub(s.fullAt); full > fullFor || idle && full > emptyFor {
			s.a.alarms.clear(AlarmSpoolFull)
		}
		return
	}
	s.boundReached()
	if s.log.Pinned() > 0 && s.log.DropPins() {
		s.a.failed(errors.New("WAL files that the member had purged before they were archived had to be let go of: the spool's bound is reached; what was in them is lost unless another member's archiver holds it"))
	}
}

func (f *folder) boundReached() {
	f.spoolFull("the spool " + f.SpoolDir + " is full: what the member purges from now on is lost, unless another member's archiver holds it; raise the limit, or bring the repository back")
}

func (f *folder) spoolFull(text string) {
	f.fullAt = time.Now()
	f.a.alarms.raise(AlarmSpoolFull, text)
}

// backlog reports that segments of this timeline are spooled which the archive lacks,
// and that what is in memory comes behind them.
func (b *outbox) backlog() bool { return b.captured.index > b.end.index }

// drain stores the next spooled segment. Where another archiver has stored the same
// entries meanwhile, the session begins anew: the member's log is compared with the
// archive, and what that covers leaves the spool.
func (s *session) drain(ctx context.Context, now time.Time) error {
	next := s.spool.behind(s.timeline, s.end.index)
	if len(next) == 0 {
		return errAgain // it was damaged: the member's log may still hold it
	}
	h := next[0]
	switch {
	case s.end.index > 0 && h.FirstIndex > s.end.index+1:
		return s.crossGap(ctx, now, h.FirstIndex, func() error { return s.send(ctx, h) })
	case s.otherChain, s.end.first > 0 && h.FirstIndex == s.end.index+1 && !h.ChainStart && h.Before != s.end.sum:
		return s.crossGap(ctx, now, max(h.FirstIndex, s.end.index+1), func() error { return s.send(ctx, h) })
	case !s.listed && s.Now().Sub(h.Cut).Abs() > putLimit:
		// Its name may have been freed since: what was archived there is listed
		// elsewhere.
		s.whenEndIsKnown(ctx, func() error {
			s.listed = true
			return nil
		})
		return nil
	}
	return s.send(ctx, h)
}

// send stores what the archive lacks of a spooled segment.
func (s *session) send(ctx context.Context, h segment.Header) error {
	c, level, err := s.unspool(ctx, h, s.end)
	if err == nil {
		s.upload(ctx, c, level)
	}
	return err
}

// unspool reads a spooled segment, and gives the content and the level of what is to be
// stored of it. At the end of the archive that is what the archive lacks, under the name that
// any other writer chooses for it, so that one of them wins. Elsewhere it overlaps others,
// under a name of its own.
func (s *session) unspool(ctx context.Context, h segment.Header, end point) (*cut, int, error) {
	_, batch, err := segment.Read(context.WithoutCancel(ctx), s.spool.repo, h.Name())
	if snapshot.IsDamaged(err) {
		s.a.failed(fmt.Errorf("spool: %w", err))
		return nil, 0, errors.Join(s.spool.remove(h.Name()), errAgain)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("spool: %w", err)
	}
	c := &cut{
		timeline: h.Timeline, before: h.Before, chainStart: h.ChainStart, batch: batch, spooled: h.Name(),
		meta: segment.Meta{Revision: h.Revision, Member: h.Member, Cut: h.Cut, Previous: h.Previous},
	}
	held := queue{entries: batch.Entries}
	if sum, holds := held.sum(h.Before, h.FirstIndex, end.index); holds && sum == end.sum && end.index < h.LastIndex {
		c.behind(end)
	}
	goesOn := end.index == 0 || c.first() == end.index+1 && (c.before == end.sum || c.chainStart || end.first == 0)
	if !goesOn || c.first() == s.skipped {
		c.meta.Unjoined = !goesOn && !c.chainStart && c.first() == end.index+1
		return c, 1, nil
	}
	if c.meta.Previous = end.first; c.chainStart {
		c.meta.Previous = 0
	}
	return c, 0, nil
}

// storeLeft stores what is spooled, and that going on at the end of the archive would
// not store: another archiver went on behind a gap, the cluster left the timeline, or
// the member does not answer, so that its log is not gone on with. ids are the
// repository's.
func (s *session) storeLeft(ctx context.Context, ids []repository.TimelineID) error {
	for _, id := range s.spool.timelines() {
		i := slices.Index(ids, id)
		if i < 0 {
			if id.ClusterID != s.id.ClusterID || len(ids) > 0 {
				s.a.failed(fmt.Errorf("the spool %s holds segments of timeline %s, which is not in the repository: they stay there", s.SpoolDir, id))
			}
			continue
		}
		var end segment.Header
		err := s.inTime(ctx, putLimit, func(ctx context.Context) (err error) {
			end, _, err = segment.Newest(ctx, s.repo, id)
			return err
		})
		if err != nil {
			return err
		}
		through := uint64(math.MaxUint64)
		if id.ClusterID == s.id.ClusterID && (i+1 == len(ids) || ids[i+1].ClusterID != id.ClusterID) {
			through = end.LastIndex
			if following := s.spool.following(id, end); !s.identified && len(following) > 0 {
				through = following[len(following)-1].LastIndex
			}
		}
		s.compared[id] = end.LastIndex
		if err := s.storeUncovered(ctx, id, end, through); err != nil {
			return err
		}
	}
	return nil
}

// storeUncovered stores what is spooled for a timeline up to an index, and that no
// segment there covers. Its archive ends with end.
func (s *session) storeUncovered(ctx context.Context, id repository.TimelineID, end segment.Header, through uint64) error {
	mine := slices.DeleteFunc(s.spool.of(id), func(h segment.Header) bool { return h.LastIndex > through })
	if len(mine) == 0 {
		return nil
	}
	last := slices.MaxFunc(mine, func(a, b segment.Header) int { return cmp.Compare(a.LastIndex, b.LastIndex) }).LastIndex
	var archived []segment.Header
	err := s.inTime(ctx, branchLimit, func(ctx context.Context) (err error) {
		if archived, err = segment.Headers(ctx, s.repo, id, mine[0].FirstIndex, last); err != nil {
			return err
		}
		return s.checkPlain(ctx, s.repo, id)
	})
	if err != nil {
		return err
	}
	for _, h := range mine {
		if contradict(archived, h) {
			s.spool.setAside(id, h.FirstIndex)
			s.a.failed(fmt.Errorf("spooled segment %s in %s holds other entries than those archived: it stays there, with what comes after it", h.Name(), s.SpoolDir))
			return nil
		}
		if segment.Cover(archived, h.FirstIndex, h.LastIndex) && !joinsAnother(archived, mine[0], h) {
			continue // it leaves the spool when the member's log was compared
		}
		c, level, err := s.unspool(ctx, h, endOf(end))
		if errors.Is(err, errAgain) {
			continue // damaged
		}
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, putLimit)
		put, o, err := s.store(limited, c, level)
		if level == 0 && !o.is(put) && (o.winner != nil || snapshot.IsDamaged(o.err)) {
			put, o, err = s.store(limited, c, 1) // the name is another segment's: this one is stored beside it
		}
		cancel()
		switch {
		case err != nil:
			return err
		case o.is(put):
		case o.winner != nil || snapshot.IsDamaged(o.err):
			s.spool.keepBack(h)
			s.a.failed(fmt.Errorf("spooled segment %s in %s is not stored: both its names in the repository are taken by something else: it stays there", h.Name(), s.SpoolDir))
			continue
		default:
			return &awayError{o.err}
		}
		s.uploaded(put)
		if err := s.spool.remove(h.Name()); err != nil {
			return err
		}
		if put.LastIndex > end.LastIndex {
			end = put
			s.timeline, s.end = id, endOf(put)
		}
	}
	return nil
}

// joinsAnother reports that the archive's chain begins anew where the spool's, from first on,
// goes on: what is spooled up to h may be all that proves the two to be of one history.
func joinsAnother(archived []segment.Header, first, h segment.Header) bool {
	return !slices.ContainsFunc(archived, func(a segment.Header) bool { return same(a, h) }) &&
		slices.ContainsFunc(archived, func(a segment.Header) bool {
			return a.ChainStart && a.FirstIndex <= h.LastIndex && (a.FirstIndex > first.FirstIndex || a.FirstIndex == first.FirstIndex && !first.ChainStart)
		})
}

// contradict reports that the archive goes another way than h: from the same point to
// the same index, and with another value of the chain there.
func contradict(archived []segment.Header, h segment.Header) bool {
	at := map[uint64]raftlog.Sum{h.FirstIndex - 1: h.Before}
	for grown := true; grown; {
		grown = false
		for _, a := range archived {
			if sum, ok := at[a.FirstIndex-1]; ok && sum == a.Before && a.LastIndex <= h.LastIndex {
				if _, known := at[a.LastIndex]; !known {
					at[a.LastIndex], grown = a.After, true
				}
			}
		}
	}
	sum, ok := at[h.LastIndex]
	return ok && sum != h.After
}
