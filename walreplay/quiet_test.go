package walreplay

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Design, Marks: two observations of one index show the state at every time between
// them, however far apart they are: nothing happened. Behind the last one nobody
// knows.
func TestTimeOfAQuietCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	base := w.backup(w.put("a", "1"))
	last := w.put("a", "2")
	w.archive(1, last, true, last)
	alive := raftlog.Mark{Index: last, Term: 2, Time: timeOf(last).Add(time.Hour), Member: 1, Revision: w.rev[last]}
	require.NoError(t, segment.WriteMark(t.Context(), w.repo, w.id, alive))
	h := w.history()
	for _, after := range []time.Duration{time.Millisecond, 2 * time.Second, time.Minute, 59 * time.Minute, time.Hour} {
		p, err := h.Resolve(t.Context(), Target{Kind: AtTime, Time: timeOf(last).Add(after)}, "", w.options())
		if err != nil || p.Last != last || p.Base.ID != base.ID {
			t.Errorf("%s after the last change: %+v, %v", after, p, err)
		}
	}
	var refused *NotCoveredError
	if p, err := h.Resolve(t.Context(), Target{Kind: AtTime, Time: alive.Time.Add(time.Minute)}, "", w.options()); !errors.As(err, &refused) || refused.Before == nil || refused.Before.Index != last {
		t.Errorf("behind the last observation: %+v, %v", p, err)
	}
}
