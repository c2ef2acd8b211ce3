package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// A compaction that the base had begun is finished by Open, beside whose own reads it
// runs: shown by the race detector, where they don't wait for each other.
func TestOpenFinishesACompaction(t *testing.T) {
	var what []any
	for i := range 3_000 {
		what = append(what, putOf(string(rune('a'+i%26)), strings.Repeat("x", 200)))
	}
	base, stopped, err := etcds(t, empty(t), Options{}, logOf(t, 1, what...), RunOptions{})
	require.NoError(t, err)
	unfinish(t, base, stopped.Revision/2)
	for range 20 {
		made, _, err := etcds(t, base, Options{}, []raftlog.Entry{}, RunOptions{})
		require.NoError(t, err)
		if rows := len(storetest.ReadContents(t, made)["key"]); rows < 1_501 || rows > 1_501+26 {
			t.Fatalf("%d rows are left of 3,000, which half were compacted of", rows)
		}
	}
}
