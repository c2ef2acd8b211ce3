package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

const (
	// askIdle is how often the member is asked while its log does not grow.
	askIdle = 500 * time.Millisecond
	// stalledAfter is how long the log may lack what the member has applied. A
	// member that applies before it saves is late by a moment.
	stalledAfter = 10 * time.Second
	// answerLimit bounds one answer.
	answerLimit = 10 * time.Second
)

// memberLog is the member's log, and what the member says of itself.
//
// One Status request is under way at most. What is released, the releaser says; nothing of
// an answer counts before it was found to come from the member whose log this is.
type memberLog struct {
	*base
	id         Identity
	identified bool // the member has answered, as the one whose log it is
	log        Log
	rel        releaser
	readTo     uint64 // the last entry in the log
	released   uint64
	stalled    time.Time      // since when the log lacks what was applied
	lost       segment.Header // the archived segment whose end the log held before, and holds no more; zero: none
	rolledBack uint64         // the log has to come back to here

	asked       time.Time // when the member was asked last
	asking      bool
	answers     chan answer
	failing     time.Time // since when it does not answer; zero when it does
	why         error     // the last reason
	status      client.MemberStatus
	applied     uint64
	confirmed   time.Time // what was acknowledged until then is applied
	committed   uint64    // what was committed when it was asked at committedAt, and was not applied yet
	committedAt time.Time // zero where nothing waits
}

// openAt opens the member's log at an index. Where that is purged the first Poll says
// so, and the next one goes on behind it.
func (m *memberLog) openAt(from uint64) error {
	if err := m.closeLog(); err != nil {
		return err
	}
	log, err := m.open(from)
	if err != nil {
		return m.unreadable(err)
	}
	m.log = log
	return nil
}

// ask starts a Status request where an answer could release something, or none
// was had for a while; sooner if entries wait that are unmarked.
func (m *memberLog) ask(ctx context.Context, now time.Time, unmarked bool) {
	if m.asking || !m.rel.wantsMore() {
		return
	}
	every := m.Poll
	if m.log.Last() == 0 && !unmarked {
		every = askIdle
	}
	if now.Sub(m.asked) < every {
		return
	}
	m.asking, m.asked = true, now
	answers, id := m.answers, m.id
	go func() {
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		status, err := m.cluster.Status(ctx, id)
		answers <- answer{status, m.Now(), time.Since(now), err}
	}()
}

// unmarked reports that entries wait to be stored and no observation of the last
// one is kept yet: the log itself may have shown that they are committed.
func (b *outbox) unmarked() bool { return !b.queue.empty() && b.marked.index < b.queue.last() }

// answered takes one answer. That of another member is an error: everything
// else would be archived on its word.
func (m *memberLog) answered(a answer) error {
	m.asking = false
	if a.err != nil {
		var other *IdentityError
		if errors.As(a.err, &other) {
			return a.err
		}
		if m.failing.IsZero() {
			m.failing = time.Now()
		}
		m.why = a.err
		if errors.Is(a.err, client.ErrOtherHistory) {
			m.a.alarms.raise(AlarmRolledBack, a.err.Error())
		}
		m.a.failed(a.err)
		return nil
	}
	if err := checkIdentity(m.id, a.status); err != nil {
		return err
	}
	m.failing = time.Time{}
	m.status, m.applied = a.status, a.status.AppliedIndex
	o := observe(a.status, a.at, a.took)
	m.rel.add(o)
	m.confirm(o, a)
	return nil
}

// confirm moves the time until which all that was acknowledged is applied. What
// was committed when the member was asked may have been acknowledged by another
// one, so that answer counts once the member has applied it: now, or later.
func (m *memberLog) confirm(o observation, a answer) {
	asked, committed := a.at.Add(-a.took), a.status.RaftIndex
	switch {
	case o.late:
		m.committedAt = time.Time{}
	case committed <= m.applied:
		m.confirmed, m.committedAt = asked, time.Time{}
	case m.committedAt.IsZero():
		m.committed, m.committedAt = committed, asked
	case m.committed <= m.applied:
		m.confirmed = m.committedAt
		m.committed, m.committedAt = committed, asked
	}
}

// read reads the log on, and moves what is known to be committed to the queue.
func (s *session) read(ctx context.Context, now time.Time) error {
	if s.queue.bytes > queueLimit {
		// Nothing is released until there is room. The log is polled all the same,
		// so that it keeps what is purged.
		return s.poll(ctx)
	}
	entries, agreed, err := s.advance(ctx)
	if err != nil {
		return err
	}
	for len(entries) > 0 && entries[0].Index < s.nextIndex() {
		entries = entries[1:]
	}
	s.queue.add(entries, now)
	s.addMarks(agreed)
	return nil
}

// advance polls the log, and gives what became known to be committed.
func (m *memberLog) advance(ctx context.Context) ([]raftlog.Entry, []observation, error) {
	if err := m.poll(ctx); err != nil {
		return nil, nil, err
	}
	m.readTo = max(m.readTo, m.log.Last())
	through, agreed := m.rel.match(m.log)
	var entries []raftlog.Entry
	if first := m.log.First(); first > 0 && through >= first {
		entries = m.log.Release(through)
	}
	if n := len(entries); n > 0 {
		m.released = max(m.released, entries[n-1].Index)
	}
	if m.rolledBack > 0 && m.released >= m.rolledBack {
		m.rolledBack = 0
		m.a.alarms.clear(AlarmRolledBack)
	}
	return entries, agreed, nil
}

func (m *memberLog) poll(ctx context.Context) error {
	err := m.log.Poll(ctx)
	if walfile.IsHole(err) {
		m.a.failed(fmt.Errorf("the log of %s: %w", m.id, err))
		return nil // what is committed before the gap is released first
	}
	if errors.Is(err, walfile.ErrReplaced) {
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	if err != nil {
		return m.unreadable(fmt.Errorf("the log of %s: %w", m.id, err))
	}
	if !m.log.Full() {
		m.a.alarms.clear(AlarmLog)
	}
	if index := m.log.Overwritten(); index > 0 {
		// It was committed, and is not what the member has now.
		m.a.alarms.raise(AlarmTimeline, fmt.Sprintf("%s overwrote entry %d, which it had committed: its history restarted", m.id, index))
		return errAgain
	}
	return nil
}

// readCommitted does the same outside of the loop of run: it asks, waits for
// the answer, and reads.
func (s *session) readCommitted(ctx context.Context) ([]raftlog.Entry, error) {
	now := time.Now()
	s.ask(ctx, now, s.unmarked())
	if s.asking {
		select {
		case a := <-s.answers:
			if err := s.answered(a); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	entries, _, err := s.advance(ctx)
	s.watch(now)
	return entries, err
}

// identifyLimit is how long the member has to say who it is, before its log is
// archived without its word, as that of a member which is down.
const identifyLimit = 3 * time.Second

// identify finds out, before anything is stored, that the log and the answers are
// of one member: with the log of another cluster than the one that answers, full
// snapshots and log would not belong together.
func (m *memberLog) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, identifyLimit)
	defer cancel()
	status, err := m.cluster.Status(ctx, m.id)
	if err == nil {
		m.identified = true
		return checkIdentity(m.id, status)
	}
	var other *IdentityError
	if errors.As(err, &other) {
		return err
	}
	m.identified = false
	return nil // why it does not answer, the loop reports
}

// unstarted reports a member that a restore or a recovery built, and that does not
// answer: it may never have run. Who built it opens its timeline, which has a parent.
func (m *memberLog) unstarted() bool {
	if m.identified || m.DataDir == "" {
		return false
	}
	entries, err := safedir.ReadDir(filepath.Join(m.DataDir, "member"))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		match, _ := filepath.Match("requorum-*.json", e.Name())
		return match
	})
}

func (m *memberLog) closeLog() error {
	if m.log == nil {
		return nil
	}
	err := m.log.Close()
	m.log = nil
	return err
}

// memberNames are the names in the cluster's member list, where a quorum answers.
func (m *memberLog) memberNames(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	reach, err := m.cluster.Reached(ctx, m.id)
	if err != nil {
		return nil
	}
	return reach.Members
}

// judge asks the cluster, with its quorum, how far it is. Where no quorum can
// answer, nothing is decided.
func (m *memberLog) judge(ctx context.Context, t *matchCheck) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	reach, err := m.cluster.Reached(ctx, m.id)
	var other *IdentityError
	switch {
	case errors.As(err, &other):
		return 0, err
	case err != nil:
		m.a.failed(fmt.Errorf("the member's log ends before the archive, and no quorum says how far the cluster is: %w", err))
		return equal, nil
	}
	if reach.Index < t.end.LastIndex || reach.Term < t.end.LastTerm {
		return behind, nil
	}
	m.reportLost(t.timeline)
	if uint64(t.end.Member) == m.id.MemberID && m.log.Last() < t.end.LastIndex {
		m.a.alarms.raise(AlarmRolledBack, fmt.Sprintf("%s has a log that ends at index %d, and held entry %d before: its disk or machine was set back; the cluster is not, and the log is followed from where it stands", m.id, m.readTo, t.end.LastIndex))
		m.rolledBack = t.end.LastIndex
	}
	return equal, nil
}

// findLost looks whether the log still holds what it held before this process: a
// member never drops what was committed.
func (m *memberLog) findLost(ctx context.Context, archived segment.Header) error {
	before := archived.LastIndex
	if before == 0 {
		return nil
	}
	log, err := m.open(before)
	if err != nil {
		return err
	}
	switch err = log.Poll(ctx); {
	case walfile.IsHole(err): // it begins later
		err = nil
	case err == nil && log.Last() < before:
		m.lost = archived
	}
	return errors.Join(err, log.Close())
}

// reportLost raises the alarm where the cluster's history is the one in which the
// log held more. It ends when the log is there again.
func (m *memberLog) reportLost(t repository.TimelineID) {
	if m.lost.Entries == 0 || m.lost.Timeline != t {
		return
	}
	m.rolledBack = max(m.rolledBack, m.lost.LastIndex)
	m.a.alarms.raise(AlarmRolledBack, fmt.Sprintf("the log of %s ends before entry %d, which it held before: its disk or machine was set back; the cluster is not, and the log is followed from where it stands", m.id, m.lost.LastIndex))
}

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

// lateEntries is how far behind a member may be whose answers show the time.
const lateEntries = 1000

func observe(s client.MemberStatus, now time.Time, took time.Duration) observation {
	return observation{index: s.AppliedIndex, term: s.RaftTerm, revision: s.Revision, time: now, asked: time.Now(), took: took, member: s.MemberID,
		late: s.Leader == 0 || s.RaftIndex > s.AppliedIndex+lateEntries}
}

// longestAnswer is how long an answer may take and still show a time.
const longestAnswer = time.Second

// mark is what the observation says about time.
func (o observation) mark() raftlog.Mark {
	return raftlog.Mark{Index: o.index, Term: o.term, Time: o.time, Member: o.member, Revision: o.revision}
}

// releaser reports what of a log is committed.
//
// One Status answer holds an applied index A and a term T. etcd 3.5 to 3.7 read
// A first and T after it; and while an entry is applied they set the index
// first, the term after it. So T is the term of A, or of a later entry, or, for
// a moment, of the entry before A.
//
// Entries are released when the log, read on until it holds A, holds it with
// exactly the term T (later records overwrite earlier ones at the same index: a
// member may apply before it saves). What T shows then:
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
	pending []observation // oldest first, until the log holds their entries
	last    observation   // the last one that agreed
	dropped int           // observations that did not
}

// answersLimit is how many observations wait for the log. Asking on would not make
// it faster.
const answersLimit = 2

func (r *releaser) wantsMore() bool { return len(r.pending) < answersLimit }

func (r *releaser) add(o observation) {
	if o.index == 0 { // it has started, and applied nothing yet
		return
	}
	r.pending = append(r.pending, o)
}

// match gives the index up to which the log is committed, 0 where nothing new
// is known, and the observations that agreed.
//
// Recorded is raft's own record of the commit index in the same file, and may
// be trusted: wal.Save of 3.5 to 3.7 writes a batch's entries before the hard
// state that commits them, so what was read before the record, overwrites
// resolved, is the log that was committed. It lags behind (a record of the
// commit index alone is not flushed), so it never replaces Status; but it
// bounds the memory while years of log are read, before any answer fits. Where
// a leader's snapshot came between, the Log shows a gap, and nothing from
// before it is released on the word of a record behind it.
func (r *releaser) match(log Log) (through uint64, agreed []observation) {
	last := log.Last()
	through = min(log.Recorded(), last)
	for len(r.pending) > 0 {
		o := r.pending[0]
		term, known := log.Term(o.index)
		if !known && o.index > last {
			break // read on
		}
		r.pending = r.pending[1:]
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
