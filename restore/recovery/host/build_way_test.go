package host

import (
	"testing"

	"github.com/requorum/requorum/restore/recovery/sources"
)

// A host that is asked to compare takes what the others don't begin from, where
// there is such a way, and keeps the others for when that fails.
func TestOtherFirst(t *testing.T) {
	for _, c := range []struct {
		beside []string
		want   string
		why    bool
	}{
		{nil, "m1 m2 a m1", false},
		{[]string{"m1"}, "m2 a m1 m1", true},
		{[]string{"m2", "a"}, "m1 m1 m2 a", true},
		{[]string{"m1", "m2", "a"}, "m1 m2 a m1", false},
	} {
		var ways []*route
		for _, owner := range []string{"m1", "m2", "a", "m1"} {
			ways = append(ways, &route{source: sources.Source{Base: sources.Base{Owner: owner}}})
		}
		s := &rebuilding{plan: RebuildPlan{CompareWith: c.beside}}
		s.otherFirst(ways)
		got := ""
		for i, w := range ways {
			if i > 0 {
				got += " "
			}
			got += w.source.Base.Owner
		}
		if got != c.want || (ways[0].why != "") != c.why {
			t.Errorf("beside %v: %s (%q), want %s", c.beside, got, ways[0].why, c.want)
		}
	}
}
