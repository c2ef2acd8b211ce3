package repository_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestVerdictName(t *testing.T) {
	timeline, backup := repository.TimelineID{ClusterID: 0xab, N: 2}, "20260102T150405Z-3f9a2c"
	for _, n := range []repository.VerdictName{
		{Sequence: 1, Level: "none", Outcome: "damaged"},
		{Sequence: repository.MaxSequence, ID: 1<<32 - 1, Level: "drill", Outcome: "passed", Timeline: timeline},
		{Sequence: 2, ID: 3, Level: "drill", Outcome: "passed", Timeline: timeline, Backup: backup},
		{Sequence: 2, ID: 3, Level: "checksum", Outcome: "unchecked", Timeline: timeline, Log: true},
	} {
		if got, err := repository.ParseVerdictName(n.String()); err != nil || got != n {
			t.Errorf("%s is read back as %+v, %v", n, got, err)
		}
	}
	const good = "verdicts/0000000000000001_00000002_drill_passed_00000000000000ab-2_" + "20260102T150405Z-3f9a2c"
	_, err := repository.ParseVerdictName(good + ".json")
	require.NoError(t, err)
	for _, bad := range []string{
		"", "verdicts/", good, good + ".json.json", good + "_x.json", good + "x.json",
		"verdicts/0000000000000001.json", "verdicts/0000000000000000_00000002_drill_passed.json", "verdicts/1_00000002_drill_passed.json",
		"verdicts/0000000000000001_00000002_Drill_passed.json", "verdicts/0000000000000001_00000002__passed.json",
		"verdicts/0000000000000001_100000002_drill_passed.json", "verdicts/0000000000000001_00000002_drill_passed_x.json",
		"verdicts/x/0000000000000001_00000002_drill_passed.json", "0000000000000001_00000002_drill_passed.json",
	} {
		if got, err := repository.ParseVerdictName(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

// Verdicts are listed by number, and what else lies beside them is passed over.
func TestVerdicts(t *testing.T) {
	s := sinktest.NewMemory()
	r := claimRepo(t, s)
	for _, name := range []string{"verdicts/0000000000000010_00000000_none_passed.json", "verdicts/0000000000000009_00000000_none_passed.json", "verdicts/readme.txt"} {
		_, err := sinks.Put(t.Context(), s, name, []byte("{}"), sinks.CreateOptions{})
		require.NoError(t, err)
	}
	var got []uint64
	for v, err := range r.Verdicts(t.Context()) {
		require.NoError(t, err)
		if v.Object.Size != 2 {
			t.Errorf("%+v", v)
		}
		got = append(got, v.Sequence)
	}
	if !slices.Equal(got, []uint64{9, 16}) {
		t.Fatalf("got %v", got)
	}
	if ids, err := r.TimelineIDs(t.Context()); err != nil || len(ids) > 0 {
		t.Fatalf("the folder of verdicts is taken for timelines: %v, %v", ids, err)
	}
}
