package verifytest

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
// random, plain and encrypted. Eight repositories; REQUORUM_SOAK=1 makes 56.
func TestHealthy(t *testing.T) {
	t.Parallel()
	repositories := uint64(8)
	if storetest.Soak() {
		repositories = 56
	}
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
// many checks passed on each rung.
func healthy(t *testing.T, version string, seed uint64) map[report.Rung]int {
	random := rand.New(rand.NewPCG(seed, 2))
	histories := Random(t, version, seed)
	l := Layout{Encrypted: seed%2 == 1, Cut: 10 + random.IntN(100)}
	if segments := len(histories[0].Entries) / l.Cut; segments > 2 {
		l.Merged = 2 + random.IntN(segments-1)
		l.Replaced = random.IntN(2) == 0
		if random.IntN(2) == 0 && l.Replaced {
			l.Merged = 0
			l.Pruned = 1 + random.IntN(segments-1)
		}
	}
	r := histories[0].Write(t, l)
	for _, h := range histories[1:] {
		h.WriteBeside(t, r, Layout{Cut: l.Cut})
	}
	rung, found := report.Replay, run(t, r, report.Replay)
	if seed%4 == seed/4%4 { // another version each time
		rung = report.Drill
		found.Checks = append(found.Checks, runOn(t, r, verify.Request{Timeline: histories[len(histories)-1].Timeline.String(), Backup: verify.Latest, Rung: rung}).Checks...)
	}
	passed := map[report.Rung]int{}
	for _, c := range found.Checks {
		if c.Status == report.Passed {
			passed[c.Rung]++
		}
		if c.Status == report.Damaged || c.Status == report.Unchecked && c.Rung != report.Replay {
			t.Errorf("a false alarm in %+v:%s", l, told(found))
			break
		}
	}
	for _, want := range report.Rungs() {
		if rung.Includes(want) && passed[want] == 0 {
			t.Errorf("nothing was proved on the rung %s in %+v:%s", want, l, told(found))
		}
	}
	return passed
}
