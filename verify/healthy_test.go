package verify_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// TestHealthy: no false alarm, up to replay and for some up to the drill, on what
// clusters of all versions did at random, with the log cut, merged and pruned at
// random, plain and encrypted. Eight repositories; -short makes two, REQUORUM_SOAK=1 56.
func TestHealthy(t *testing.T) {
	t.Parallel()
	repositories := uint64(storetest.Amount(2, 8, 56))
	for seed := range repositories {
		versions := storetest.Versions()
		version := versions[seed%uint64(len(versions))]
		t.Run(fmt.Sprintf("%d-%s", seed, version), func(t *testing.T) {
			t.Parallel()
			passed := healthy(t, version, seed)
			t.Attr("replays", fmt.Sprint(passed[report.Replay]))
			t.Attr("drills", fmt.Sprint(passed[report.Drill]))
		})
	}
	t.Attr("repositories", fmt.Sprint(repositories))
}

// healthy makes a repository and wants nothing found in it. The result is how
// many checks passed on each level.
func healthy(t *testing.T, version string, seed uint64) map[report.Level]int {
	random := rand.New(rand.NewPCG(seed, 2))
	histories := randomHistories(t, version, seed)
	l := layout{encrypted: seed%2 == 1, cut: 10 + random.IntN(100)}
	if segments := len(histories[0].Entries) / l.cut; segments > 2 {
		l.merged = 2 + random.IntN(segments-1)
		l.replaced = random.IntN(2) == 0
		if random.IntN(2) == 0 && l.replaced {
			l.merged = 0
			l.pruned = 1 + random.IntN(segments-1)
		}
	}
	r := histories[0].write(t, l)
	for _, h := range histories[1:] {
		h.writeBeside(t, r, layout{cut: l.cut})
	}
	level, found := report.Replay, r.verify(t, verify.Request{Backup: verify.All, Level: report.Replay})
	if seed%4 == seed/4%4 { // another version each time
		level = report.Drill
		found.Checks = append(found.Checks, r.verify(t, verify.Request{Timeline: histories[len(histories)-1].Timeline.String(), Backup: verify.Latest, Level: level}).Checks...)
	}
	passed := map[report.Level]int{}
	for _, c := range found.Checks {
		if c.Status == report.Passed {
			passed[c.Level]++
		}
		if c.Status == report.Damaged || c.Status == report.Unchecked && c.Level != report.Replay {
			t.Errorf("a false alarm in %+v: %+v", l, found.Checks)
			break
		}
	}
	for _, want := range report.Levels() {
		if level.Includes(want) && passed[want] == 0 {
			t.Errorf("nothing was proved on the level %s in %+v: %+v", want, l, found.Checks)
		}
	}
	return passed
}
