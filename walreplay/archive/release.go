package archive

import (
	"time"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// observation is one Status answer.
type observation struct {
	index, term uint64
	revision    int64
	time        time.Time // when it came, by the host's clock
	asked       time.Time // by the monotonic clock
	took        time.Duration
	member      uint64
	late        bool // the member is cut off, or far behind what is committed: the time is not that of the entry
}

// lateEntries is how far behind a member may be whose answers tell the time.
const lateEntries = 1000

func observe(s store.MemberStatus, now time.Time, took time.Duration) observation {
	return observation{index: s.AppliedIndex, term: s.RaftTerm, revision: s.Revision, time: now, asked: time.Now(), took: took, member: s.MemberID,
		late: s.Leader == 0 || s.RaftIndex > s.AppliedIndex+lateEntries}
}

// longestAnswer is how long an answer may take and still tell a time.
const longestAnswer = time.Second

// mark is what the observation says about time.
func (o observation) mark() raftlog.Mark {
	return raftlog.Mark{Index: o.index, Term: o.term, Time: o.time, Member: o.member, Revision: o.revision}
}

// releaser tells what of a log is committed.
//
// One Status answer holds an applied index A and a term T. etcd 3.4 to 3.7 read
// A first and T after it; and while an entry is applied they set the index
// first, the term after it. So T is the term of A, or of a later entry, or, for
// a moment, of the entry before A.
//
// Entries are released when the log, read on until it holds A, holds it with
// exactly the term T (later records overwrite earlier ones at the same index: a
// member may apply before it saves). What T tells then:
//
//   - T is of A: the log up to A is the committed one, by raft's log matching.
//   - T is of a later entry: then no log holds A with T. The leader of T had the
//     committed entry A, of a lower term, before it made any.
//   - T is of the entry before A: what the log holds at A may be a refused entry
//     of the leader of T. But that leader made the entry before A, which is
//     committed, and its log up to there is the one at hand.
//
// So all before A is committed, always; and A itself when the next answer shows
// that the moment is over: a later A, or the same A and T once more.
type releaser struct {
	held    []observation // oldest first, until the log holds their entries
	last    observation   // the last one that agreed
	dropped int           // observations that did not
}

// heldLimit is how many observations wait for the log. Asking on would not make
// it faster.
const heldLimit = 2

func (r *releaser) wantsMore() bool { return len(r.held) < heldLimit }

func (r *releaser) add(o observation) {
	if o.index == 0 { // it has started, and applied nothing yet
		return
	}
	r.held = append(r.held, o)
}

// match gives the index up to which the log is committed, 0 where nothing new
// is known, and the observations that agreed.
//
// Recorded is raft's own record of the commit index in the same file, and may
// be trusted: wal.Save of 3.4 to 3.7 writes a batch's entries before the hard
// state that commits them, so what was read before the record, overwrites
// resolved, is the log that was committed. It lags behind (a record of the
// commit index alone is not flushed), so it never replaces Status; but it
// bounds the memory while years of log are read, before any answer fits. Where
// a leader's snapshot came between, the Log shows a hole, and nothing from
// before it is released on the word of a record behind it.
func (r *releaser) match(log Log) (through uint64, agreed []observation) {
	last := log.Last()
	through = min(log.Recorded(), last)
	for len(r.held) > 0 {
		o := r.held[0]
		term, known := log.Term(o.index)
		if !known && o.index > last {
			break // read on
		}
		r.held = r.held[1:]
		if known && term == o.term {
			sure := o.index - 1
			if r.last.index == o.index && r.last.term == o.term {
				sure = o.index
			}
			through = max(through, sure)
			r.last = o
			agreed = append(agreed, o)
		} else if known {
			r.dropped++
		}
	}
	return through, agreed
}
