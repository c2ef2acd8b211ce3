package restore

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

// TestPromise8Bump: the new revision is DefaultBump above all that is known.
func TestPromise8Bump(t *testing.T) {
	for _, c := range []struct {
		req          BumpRequest
		from, known  int64
		amount, next int64
	}{
		{BumpRequest{}, 100, 0, DefaultBump, 100 + DefaultBump},
		{BumpRequest{}, 100, 50, DefaultBump, 100 + DefaultBump},
		{BumpRequest{}, 100, 5000, DefaultBump + 4900, 5000 + DefaultBump},
		{BumpRequest{Mode: BumpBy, Amount: 7}, 100, 0, 7, 107},
		{BumpRequest{Mode: BumpBy, Amount: 8}, 100, 107, 8, 108},
	} {
		b, notes, err := planBump(c.req, snapshot.Facts{Revision: c.from}, c.known)
		if err != nil || b.Amount != c.amount || b.NewRevision != c.next || !b.MarkCompacted || b.Reason == "" {
			t.Errorf("%+v: %+v %v", c, b, err)
		}
		if len(notes) > 0 {
			t.Errorf("%+v: notes %q", c, notes)
		}
	}
	for _, known := range []int64{0, 4, 5} {
		if b, notes, err := planBump(BumpRequest{Mode: BumpOff}, snapshot.Facts{Revision: 5}, known); b != nil || err != nil || len(notes) != 1 {
			t.Errorf("off, known %d: %v %q %v", known, b, notes, err)
		}
	}
	// Where nothing was lost, bounds that lie above the revision mean nothing.
	if b, notes, err := planBump(BumpRequest{Mode: BumpNone}, snapshot.Facts{Revision: 5}, 9); b != nil || err != nil || len(notes) > 0 {
		t.Errorf("none: %v %q %v", b, notes, err)
	}
	_, _, err := planBump(BumpRequest{}, snapshot.Facts{Revision: math.MaxInt64 - 5}, 0)
	require.Error(t, err, "a bump that overflows is planned")
	// What would leave clients silent is refused, with what to give instead.
	for req, want := range map[BumpRequest]string{
		{Mode: BumpOff}:           "--bump-revision auto",
		{Mode: BumpBy, Amount: 1}: "give more than 7",
		{Mode: BumpBy, Amount: 7}: "give more than 7",
	} {
		var bad *RequestError
		if _, _, err := planBump(req, snapshot.Facts{Revision: 100}, 107); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "reached 107") {
			t.Errorf("%+v: %v, want %q", req, err, want)
		}
	}
	for _, bad := range []BumpRequest{{Mode: "on"}, {Mode: BumpBy}, {Mode: BumpBy, Amount: -1}, {Mode: BumpOff, Amount: 3}, {Amount: 3}} {
		if bad.check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
