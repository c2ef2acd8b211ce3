package e2e

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// expectSameBuckets wants a rebuilt database to be a stopped member's, row by
// row, but for what walreplay/engine/doc.go lists as not replicated.
func expectSameBuckets(t *testing.T, what, rebuilt, member string) {
	t.Helper()
	got, want := storetest.ReadContents(t, rebuilt), storetest.ReadContents(t, member)
	for _, c := range []storetest.Contents{got, want} {
		for _, key := range []string{"consistent_index", "term", "confState", "storageVersion"} {
			delete(c["meta"], key)
		}
	}
	// Of a compaction that the member had not finished rows are left.
	compacted := string(want["meta"]["scheduledCompactRev"])
	unfinished := compacted != string(want["meta"]["finishedCompactRev"])
	if unfinished {
		delete(got["meta"], "finishedCompactRev")
		delete(want["meta"], "finishedCompactRev")
	}
	for _, c := range []storetest.Contents{got, want} {
		for k := range c["key"] {
			if unfinished && k[:8] <= compacted[:8] {
				delete(c["key"], k)
			}
		}
	}
	if d := got.Differences(want); len(d) > 0 {
		t.Errorf("%s: %d rows differ from the member's:\n%s", what, len(d), strings.Join(d[:min(8, len(d))], "\n"))
	}
}
