package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/verify/report"
)

// Promise 1: the marks of a timeline that ended, lived again and ended again are all
// verified. That the first of them is gone, behind which nobody would look, is
// damage.
func TestPromise1MarksThatEndATimeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sinktest.NewMemory())
	for n := range 2 {
		other := repository.TimelineID{ClusterID: 0x99, N: n + 1}
		require.NoError(t, w.repo.Supersede(t.Context(), repository.Superseded{Timeline: worldTimeline, By: other, Reason: "recovered", Created: time.Now()}))
		require.NoError(t, w.repo.Reinstate(t.Context(), repository.Superseded{Timeline: other, By: worldTimeline, Reason: "taken back", Created: time.Now()}))
	}
	e := &examination{repo: w.repo}
	look := func() *report.Check {
		c := &report.Check{Status: report.Passed}
		e.checkEnding(t.Context(), c, worldTimeline)
		return c
	}
	if c := look(); c.Status != report.Passed || len(c.Findings) > 0 || c.Reason != "" {
		t.Errorf("%+v", c)
	}
	require.NoError(t, w.repo.Sink().Delete(t.Context(), repository.SupersededName(worldTimeline, 1)))
	if c := look(); len(c.Findings) != 1 || c.Findings[0].Kind != report.KindMark || !strings.Contains(c.Findings[0].Text, "is gone") {
		t.Errorf("%+v", c)
	}
}
