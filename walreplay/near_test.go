package walreplay

import (
	"errors"
	"strings"
	"testing"

	"github.com/requorum/requorum/walreplay/walfile"
)

// Promise 3: an observation that lies in what cannot be restored is not named as
// a recoverable point: the nearest points beyond it are.
func TestNearestPointsAreRecoverable(t *testing.T) {
	w := story(t)
	w.archive(4, 4, true, 4)
	w.archive(6, 7, true, 6, 7) // 5 is missing: 6 and 7 are there and of no use
	w.archive(9, 9, true, 9)
	w.archive(11, 12, true, 11, 12) // 10 is missing
	h := w.history()
	for _, c := range []struct {
		target        Target
		before, after uint64
	}{
		{Target{Kind: AtTime, Time: timeOf(5)}, 4, 8},
		{Target{Kind: AtTime, Time: timeOf(10)}, 9, 0},
		{Target{Kind: AtTime, Time: timeOf(20)}, 9, 0},
	} {
		_, err := h.Resolve(t.Context(), c.target, "", w.options())
		var refused *NotCoveredError
		if !errors.As(err, &refused) || index(refused.Before) != c.before || index(refused.After) != c.after {
			t.Errorf("%s: %v", c.target, err)
		}
	}
}

// A revision that the log is only known to have reached is reported as that.
func TestNearRevisionIsALowerBound(t *testing.T) {
	w := story(t)
	w.archive(4, 5, true, 4, 5)
	_, err := w.history().Resolve(t.Context(), Target{Kind: AtIndex, Index: 6}, "", w.options())
	if err == nil || !strings.Contains(err.Error(), "raft index 5, revision at least 3") || !strings.Contains(err.Error(), "raft index 8, revision 5,") {
		t.Error(err)
	}
}

// Where all that was read is known to be committed, no "last 0 entries" are reported.
func TestUnprovenWithoutUncommitted(t *testing.T) {
	w := story(t)
	b, facts := w.bases[0], w.bases[0].Facts
	facts.Members = append(facts.Members, facts.Members...) // two voters
	for _, commit := range []uint64{b.Index() - 1, b.Index()} {
		c := &Recipe{Index: b.Index(), BaseIndex: b.Index()}
		(&member{summary: walfile.Summary{Commit: commit}}).complete(c, facts)
		if said := strings.Contains(c.Unproven, "the last"); said || c.Unproven == "" {
			t.Errorf("commit %d: %q", commit, c.Unproven)
		}
	}
	c := &Recipe{Index: b.Index() + 2, BaseIndex: b.Index()}
	(&member{summary: walfile.Summary{Commit: b.Index() + 1}}).complete(c, facts)
	if !strings.Contains(c.Unproven, "the last 1 entries") {
		t.Errorf("one that is not known to be committed: %q", c.Unproven)
	}
}
