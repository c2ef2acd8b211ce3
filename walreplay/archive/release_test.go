package archive

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seeing polls a member's file and takes one Status answer.
func seeing(t *testing.T, r *releaser, l Log, index, term uint64) uint64 {
	t.Helper()
	if index > 0 {
		r.add(observation{index: index, term: term, time: time.Now()})
	}
	require.NoError(t, l.Poll(context.Background()))
	through, _ := r.match(l)
	if first := l.First(); first > 0 && through >= first {
		l.Release(through)
	}
	return through
}

// Promise 1: entries are held until the log holds the applied entry with
// exactly the term of the same answer.
func TestPromise1HoldUntilTheLogHoldsIt(t *testing.T) {
	m := newFakeCluster(1).members[0]
	for i := uint64(1); i <= 3; i++ {
		m.save(testEntry(i, 2, "x"))
	}
	l, _ := m.open(0)
	r := &releaser{}
	if got := seeing(t, r, l, 5, 2); got != 0 {
		t.Errorf("released to %d on an answer about entry 5, which the log lacks", got)
	}
	m.save(testEntry(4, 2, "x"))
	if got := seeing(t, r, l, 0, 0); got != 0 {
		t.Errorf("released to %d", got)
	}
	m.save(testEntry(5, 2, "x"))
	if got := seeing(t, r, l, 0, 0); got != 4 {
		t.Errorf("released to %d, want 4: the last one is not sure yet", got)
	}
	if got := seeing(t, r, l, 5, 2); got != 5 {
		t.Errorf("released to %d after the same answer again, want 5", got)
	}
}

// Promise 1: a rejoining old leader reports what it applied while its file
// still holds the overwritten tail. None of that tail is ever released.
func TestPromise1OverwrittenTail(t *testing.T) {
	m := newFakeCluster(1).members[0]
	for i := uint64(1); i <= 5; i++ {
		m.save(testEntry(i, 2, "committed"))
	}
	for i := uint64(6); i <= 9; i++ {
		m.save(testEntry(i, 2, "refused"))
	}
	l, _ := m.open(0)
	r := &releaser{}
	seeing(t, r, l, 5, 2)
	if got := seeing(t, r, l, 5, 2); got != 5 {
		t.Fatalf("released to %d, want 5", got)
	}
	// It applied 6 to 8 of the new leader, and has not saved them.
	if got := seeing(t, r, l, 8, 3); got > 5 || r.dropped != 1 {
		t.Fatalf("released to %d, %d observations dropped", got, r.dropped)
	}
	if got := seeing(t, r, l, 8, 3); got > 5 {
		t.Fatalf("released to %d", got)
	}
	for i := uint64(6); i <= 8; i++ {
		m.save(testEntry(i, 3, "committed"))
	}
	seeing(t, r, l, 8, 3)
	if got := seeing(t, r, l, 8, 3); got != 8 {
		t.Fatalf("released to %d, want 8", got)
	}
}

// etcd sets the applied index first and the term after it, and Status reads
// them in that order: for a moment the term is of the entry before. An old
// leader's refused entry has just that term.
func TestPromise1TermOfTheEntryBefore(t *testing.T) {
	m := newFakeCluster(1).members[0]
	for i := uint64(1); i <= 5; i++ {
		m.save(testEntry(i, 2, "committed"))
	}
	m.save(testEntry(6, 2, "refused"))
	l, _ := m.open(0)
	r := &releaser{}
	if got := seeing(t, r, l, 6, 2); got != 5 { // entry 6 of term 3 is being applied
		t.Fatalf("released to %d, want 5", got)
	}
	m.save(testEntry(6, 3, "committed"))
	seeing(t, r, l, 6, 3)
	if got := seeing(t, r, l, 6, 3); got != 6 {
		t.Fatalf("released to %d, want 6", got)
	}
}

// A term of a later entry fits no log at the index, and is dropped.
func TestPromise1TermOfALaterEntry(t *testing.T) {
	m := newFakeCluster(1).members[0]
	for i := uint64(1); i <= 4; i++ {
		m.save(testEntry(i, 2, "x"))
	}
	m.save(testEntry(5, 3, "x"))
	l, _ := m.open(0)
	r := &releaser{}
	if got := seeing(t, r, l, 4, 3); got != 0 || r.dropped != 1 {
		t.Fatalf("released to %d, %d dropped", got, r.dropped)
	}
}

// While years of log are read no answer fits; raft's own record releases.
func TestRecordedCommitReleases(t *testing.T) {
	m := newFakeCluster(1).members[0]
	for i := uint64(1); i <= 9; i++ {
		m.save(testEntry(i, 2, "x"))
	}
	m.recorded = 7
	l, _ := m.open(0)
	r := &releaser{}
	if got := seeing(t, r, l, 1000, 3); got != 7 {
		t.Fatalf("released to %d, want 7", got)
	}
}

// Promise 1, through the archiver: the overwritten tail of a member that applies
// before it saves never reaches the archive.
func TestPromise1TailNeverArchived(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.cluster.commit(20, "x")
		m := r.cluster.members[0]
		a := r.start(0)
		r.waitArchived(a, 20, 5*time.Second)
		r.cluster.mu.Lock()
		for i := uint64(21); i <= 30; i++ {
			m.save(testEntry(i, 2, "refused"))
		}
		r.cluster.mu.Unlock()
		time.Sleep(3 * time.Second)
		r.cluster.mu.Lock()
		for i := uint64(21); i <= 26; i++ {
			m.apply(testEntry(i, 3, "committed"))
		}
		r.cluster.mu.Unlock()
		time.Sleep(3 * time.Second)
		if got := a.State(); got.Archived != 20 || got.Dropped == 0 {
			t.Errorf("archived to %d with %d observations dropped", got.Archived, got.Dropped)
		}
		r.cluster.mu.Lock()
		for i := uint64(21); i <= 26; i++ {
			m.save(testEntry(i, 3, "committed"))
		}
		r.cluster.mu.Unlock()
		r.waitArchived(a, 26, 5*time.Second)
		r.sameAs(1, m.entries)
		if a.raised(AlarmTimeline) {
			t.Error("an alarm about the timeline")
		}
	})
}
