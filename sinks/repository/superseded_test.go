package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// marks is a repository with timelines to end.
type marks struct {
	*testing.T
	repo *repository.Repository
}

func newMarks(t *testing.T) *marks {
	t.Helper()
	return &marks{t, newRepository(t)}
}

func (m *marks) id(cluster uint64) repository.TimelineID {
	return repository.TimelineID{ClusterID: cluster, N: 1}
}

func (m *marks) supersede(t, by uint64) error {
	return m.repo.Supersede(m.Context(), repository.Superseded{Timeline: m.id(t), By: m.id(by), Reason: "recovered", Created: time.Unix(1, 0).UTC()})
}

func (m *marks) reinstate(taken, old uint64) error {
	return m.repo.Reinstate(m.Context(), repository.Superseded{Timeline: m.id(taken), By: m.id(old), Reason: "taken back", Created: time.Unix(2, 0).UTC()})
}

// ends says by which cluster's timeline t ended; 0 for one that lives.
func (m *marks) ends(t uint64) uint64 {
	m.Helper()
	ended, is, err := m.repo.Superseded(m.Context(), m.id(t))
	require.NoError(m, err)
	if is && ended.Timeline != m.id(t) {
		m.Errorf("asked about %s, and heard about %s", m.id(t), ended.Timeline)
	}
	return ended.By.ClusterID
}

func (m *marks) want(state map[uint64]uint64) {
	m.Helper()
	for t, by := range state {
		if got := m.ends(t); got != by {
			m.Errorf("timeline of cluster %d ended by %d, want %d", t, got, by)
		}
	}
}

func (m *marks) must(err error) {
	m.Helper()
	require.NoError(m, err)
}

// Promise 6: a recovery that was taken back ends its own timeline, and all that
// it had superseded live again; and that can go round any number of times, with
// each step done twice.
func TestPromise6ReinstateAndRecoverAgain(t *testing.T) {
	m := newMarks(t)
	m.must(m.supersede(1, 9)) // two branches of the old cluster
	m.must(m.supersede(2, 9))
	m.want(map[uint64]uint64{1: 9, 2: 9, 9: 0})
	m.must(m.reinstate(9, 1))
	m.must(m.reinstate(9, 1))
	m.want(map[uint64]uint64{1: 0, 2: 0, 9: 1})
	require.ErrorIs(t, m.supersede(9, 3), sinks.ErrExists, "what was taken back goes on elsewhere")
	for round := uint64(10); round < 13; round++ {
		m.must(m.supersede(1, round))
		require.ErrorIs(t, m.supersede(1, 99), sinks.ErrExists, "ended twice")
		m.want(map[uint64]uint64{1: round, round: 0, 2: 0, 9: 1})
		m.must(m.reinstate(round, 1))
		m.want(map[uint64]uint64{1: 0, round: 1, 9: 1})
	}
	names, err := m.repo.SupersededNames(t.Context(), m.id(1))
	m.must(err)
	if len(names) != 4 || !slices.Contains(names, repository.SupersededName(m.id(1), 4)) {
		t.Errorf("marks %q", names)
	}
	for _, name := range names {
		if s, err := m.repo.ReadSuperseded(t.Context(), name); err != nil || s.Timeline != m.id(1) || s.Undone {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// A recovery from a recovery: only the newest can be taken back, and the one
// before it then lives as it did.
func TestPromise6ReinstateInTurn(t *testing.T) {
	m := newMarks(t)
	m.must(m.supersede(1, 2))
	m.must(m.supersede(2, 3))
	require.ErrorIs(t, m.reinstate(2, 1), sinks.ErrExists, "taken back in the middle")
	m.want(map[uint64]uint64{1: 2, 2: 3, 3: 0})
	m.must(m.reinstate(3, 2))
	m.want(map[uint64]uint64{1: 2, 2: 0, 3: 2})
	m.must(m.reinstate(2, 1))
	m.want(map[uint64]uint64{1: 0, 2: 1, 3: 2})
}

// A mark on the timeline that goes on is damaged: in doubt the old one has ended.
func TestPromise6DamagedReinstatement(t *testing.T) {
	m := newMarks(t)
	m.must(m.supersede(1, 2))
	_, err := sinks.Put(t.Context(), m.repo.Sink(), repository.SupersededName(m.id(2), 1), []byte("x"), sinks.CreateOptions{})
	m.must(err)
	_, _, err = m.repo.Superseded(t.Context(), m.id(1))
	require.ErrorIs(t, err, repository.ErrAltered)
	require.ErrorIs(t, m.supersede(1, 5), repository.ErrAltered, "ended anew")
}

// A mark that no version writes is damaged; it is of no newer version, and stops nothing else.
func TestSuperseded_NoneOfOurs_IsAltered(t *testing.T) {
	m := newMarks(t)
	for cluster, s := range map[uint64]repository.Superseded{
		1: {Format: 1},
		2: {Format: 1, By: m.id(2)},
		3: {Format: 0, By: m.id(9)},
		4: {Format: -1, By: m.id(9)},
	} {
		s.Timeline = m.id(cluster)
		m.must(m.repo.WriteDocument(t.Context(), repository.SupersededName(s.Timeline, 1), s))
		_, _, err := m.repo.Superseded(t.Context(), s.Timeline)
		require.ErrorIs(t, err, repository.ErrAltered, "%+v", s)
	}
}
