package restore

import (
	"math"
	"strings"
	"testing"

	"github.com/requorum/requorum/snapshot"
)

// TestPromise8Bump: the new revision is DefaultBump above all that is known.
func TestPromise8Bump(t *testing.T) {
	for _, c := range []struct {
		req          BumpRequest
		from, known  int64
		amount, next int64
		note         string
	}{
		{BumpRequest{}, 100, 0, DefaultBump, 100 + DefaultBump, ""},
		{BumpRequest{}, 100, 50, DefaultBump, 100 + DefaultBump, ""},
		{BumpRequest{}, 100, 5000, DefaultBump + 4900, 5000 + DefaultBump, ""},
		{BumpRequest{Mode: BumpBy, Amount: 7}, 100, 0, 7, 107, ""},
		{BumpRequest{Mode: BumpBy, Amount: 7}, 100, 107, 7, 107, "clients may miss changes"},
	} {
		b, notes, err := planBump(c.req, snapshot.Facts{Revision: c.from}, c.known)
		if err != nil || b.Amount != c.amount || b.NewRevision != c.next || !b.MarkCompacted || b.Reason == "" {
			t.Errorf("%+v: %+v %v", c, b, err)
		}
		if !strings.Contains(strings.Join(notes, " "), c.note) || c.note == "" && len(notes) > 0 {
			t.Errorf("%+v: notes %q", c, notes)
		}
	}
	if b, notes, err := planBump(BumpRequest{Mode: BumpOff}, snapshot.Facts{Revision: 5}, 0); b != nil || err != nil || len(notes) != 1 {
		t.Errorf("off: %v %q %v", b, notes, err)
	}
	if _, _, err := planBump(BumpRequest{}, snapshot.Facts{Revision: math.MaxInt64 - 5}, 0); err == nil {
		t.Error("a bump that overflows is planned")
	}
	for _, bad := range []BumpRequest{{Mode: "on"}, {Mode: BumpBy}, {Mode: BumpBy, Amount: -1}, {Mode: BumpOff, Amount: 3}, {Amount: 3}} {
		if bad.check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
