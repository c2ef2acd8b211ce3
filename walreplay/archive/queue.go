package archive

import (
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// queue holds what is committed and not durable in the repository, nor in the
// spool.
type queue struct {
	entries  []raftlog.Entry // ascending; a hole in a member's log is one here
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

// run is the beginning of the queue up to the first hole, of about limit
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
		q.entries = nil // lets go of the memory as well
	} else {
		q.entries = q.entries[n:]
	}
	for len(q.arrivals) > 0 && q.arrivals[0].last <= through {
		q.arrivals = q.arrivals[1:]
	}
	q.marks = cutMarks(q.marks, through)
	// The last hint that is passed stays: it is the best for what comes next.
	for len(q.hints) > 1 && q.hints[1].index <= through {
		q.hints = q.hints[1:]
	}
}

func cutMarks(marks []raftlog.Mark, through uint64) []raftlog.Mark {
	for len(marks) > 0 && marks[0].Index <= through {
		marks = marks[1:]
	}
	return marks
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
