package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

const testCluster = 0xc1

// fakeCluster is a cluster without a consensus: tests say what is committed and
// what each member's file holds.
type fakeCluster struct {
	mu       sync.Mutex
	term     uint64
	members  []*fakeMember
	noQuorum bool
	barriers int
}

// fakeMember is one member: its log file, and what it answers.
type fakeMember struct {
	cluster  *fakeCluster
	id       Identity
	answers  Identity
	etcd     string
	entries  []raftlog.Entry // in the file, from index first on
	first    uint64
	recorded uint64
	applied  uint64
	term     uint64 // as Status reports it
	revision int64
	version  int    // of the file: grows when entries are overwritten
	lowest   uint64 // index overwritten last
	down     bool
	frozen   bool // the file as it is read does not grow any more
	leader   bool
	refuses  error  // that its client ends with
	cutOff   bool   // it sees no leader
	ahead    uint64 // what it knows to be in the log, where it applies that late
	asked    int
	pinned   int64
	opened   int
	stale    int    // what was opened up to this time does not grow any more
	damaged  uint64 // entries up to this one cannot be read any more
}

func newFakeCluster(members int) *fakeCluster {
	c := &fakeCluster{term: 2}
	for i := range members {
		id := Identity{ClusterID: testCluster, MemberID: uint64(i + 1)}
		c.members = append(c.members, &fakeMember{cluster: c, id: id, answers: id, first: 1, term: 1, leader: i == 0})
	}
	return c
}

func testEntry(index, term uint64, text string) raftlog.Entry {
	return raftlog.Entry{Index: index, Term: term, Type: raftpb.EntryNormal, Data: fmt.Appendf(nil, "%s %d of term %d", text, index, term)}
}

func (m *fakeMember) last() uint64 { return m.first + uint64(len(m.entries)) - 1 }

// save puts an entry into the file; one that is not behind the last overwrites.
func (m *fakeMember) save(e raftlog.Entry) {
	if e.Index <= m.last() {
		m.entries = slices.Clip(m.entries[:e.Index-m.first]) // who has the slice keeps what it holds
		m.version++
		m.lowest = e.Index
	}
	m.entries = append(m.entries, e)
}

func (m *fakeMember) apply(e raftlog.Entry) {
	m.applied, m.term, m.revision = e.Index, e.Term, int64(e.Index)+1
}

// commit writes n entries that all members that are not down save and apply.
func (c *fakeCluster) commit(n int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		index := uint64(0)
		for _, m := range c.members {
			index = max(index, m.last())
		}
		e := testEntry(index+1, c.term, text)
		for _, m := range c.members {
			if !m.down {
				m.save(e)
				m.apply(e)
			}
		}
	}
}

// catchUp gives a member what another one has.
func (c *fakeCluster) catchUp(i, from int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.members[from].entries {
		if m := c.members[i]; e.Index > m.last() {
			m.save(e)
			m.apply(e)
		}
	}
}

// purge takes the beginning of a member's file away.
func (m *fakeMember) purge(through uint64) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.entries, m.first = slices.Clone(m.entries[through-m.first+1:]), through+1
}

func (m *fakeMember) open(from uint64) (Log, error) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.opened++
	if from == 0 {
		from = m.first
	}
	l := &fakeLog{member: m, next: from, version: m.version, opened: m.opened}
	if m.first < from && from <= m.last()+1 {
		l.before = m.entries[from-1-m.first] // which a real one reads on its way
	}
	return l, nil
}

// fakeLog reads a member's file.
type fakeLog struct {
	member   *fakeMember
	next     uint64 // the first that is pending
	pending  []raftlog.Entry
	before   raftlog.Entry // the one before where it was opened
	released raftlog.Entry
	recorded uint64
	version  int
	over     uint64
	closed   bool
	opened   int
}

func (l *fakeLog) Identity() Identity { return l.member.id }

func (l *fakeLog) Poll(context.Context) error {
	m := l.member
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.frozen || l.opened <= m.stale {
		return nil
	}
	if m.version != l.version {
		l.version = m.version
		if m.lowest < l.next && l.released.Index >= m.lowest {
			l.over = m.lowest
		}
	}
	l.recorded = m.recorded
	if l.next <= m.damaged {
		return &walfile.CorruptError{Dir: "fake", Segment: "the first", Err: errors.New("a record with another checksum")}
	}
	if l.next < m.first && len(m.entries) > 0 {
		purged := &walfile.PurgedError{Want: l.next, First: m.first}
		l.next, l.pending = m.first, nil
		return purged
	}
	l.pending = nil
	if len(m.entries) > 0 && l.next <= m.last() {
		l.pending = slices.Clone(m.entries[l.next-m.first:])
	}
	return nil
}

func (l *fakeLog) First() uint64 {
	if len(l.pending) == 0 {
		return 0
	}
	return l.pending[0].Index
}

func (l *fakeLog) Last() uint64 {
	if len(l.pending) == 0 {
		return 0
	}
	return l.pending[len(l.pending)-1].Index
}

func (l *fakeLog) Term(index uint64) (uint64, bool) {
	if index == l.released.Index && index > 0 {
		return l.released.Term, true
	}
	if index == l.before.Index && index > 0 {
		return l.before.Term, true
	}
	if f := l.First(); f == 0 || index < f || index > l.Last() {
		return 0, false
	}
	return l.pending[index-l.First()].Term, true
}

func (l *fakeLog) Recorded() uint64    { return l.recorded }
func (l *fakeLog) Full() bool          { return false }
func (l *fakeLog) Overwritten() uint64 { return l.over }

func (l *fakeLog) Release(through uint64) []raftlog.Entry {
	if l.First() == 0 || through < l.First() {
		return nil
	}
	n := min(through, l.Last()) - l.First() + 1
	out := l.pending[:n:n]
	l.pending = l.pending[n:]
	l.released = out[n-1]
	l.next = l.released.Index + 1
	return out
}

func (l *fakeLog) Pinned() int64 {
	l.member.cluster.mu.Lock()
	defer l.member.cluster.mu.Unlock()
	return l.member.pinned
}

func (l *fakeLog) DropPins() bool {
	l.member.cluster.mu.Lock()
	defer l.member.cluster.mu.Unlock()
	l.member.pinned = 0
	return true
}

func (l *fakeLog) Close() error {
	if l.closed {
		return errors.New("closed twice")
	}
	l.closed = true
	return nil
}

// asked is what one archiver asks the fake cluster.
type asked struct{ member *fakeMember }

func (a asked) Status(_ context.Context, _ Identity) (client.MemberStatus, error) {
	m := a.member
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.asked++
	if m.down {
		return client.MemberStatus{}, errors.New("connection refused")
	}
	if m.refuses != nil {
		return client.MemberStatus{}, m.refuses
	}
	leader := uint64(1)
	if m.cutOff {
		leader = 0
	}
	return client.MemberStatus{
		Endpoint: "http://fake", Version: m.etcd, ClusterID: m.answers.ClusterID, MemberID: m.answers.MemberID,
		AppliedIndex: m.applied, RaftTerm: m.term, Revision: m.revision, Leader: leader, IsLeader: m.leader, RaftIndex: max(m.applied, m.ahead),
	}, nil
}

func (a asked) Reached(context.Context, Identity) (Reach, error) {
	c := a.member.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.barriers++
	if c.noQuorum {
		return Reach{}, client.ErrNoBarrier
	}
	r := Reach{Members: []string{"m1", "m2", "m3"}}
	for _, m := range c.members {
		r.Index, r.Term = max(r.Index, m.applied), max(r.Term, m.term)
	}
	return r, nil
}
