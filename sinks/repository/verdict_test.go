package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// Verdicts on a backup are listed by time, and what else lies beside them is skipped.
func TestVerdicts(t *testing.T) {
	s := sinktest.NewMemory()
	r := jobRepo(t, s)
	early := repository.VerdictName{Timeline: repository.TimelineID{ClusterID: 1, N: 1}, Backup: "20260102T150405Z-3f9a2c", Finished: time.Unix(9, 0).UTC(), ID: 2}
	late := early
	late.Finished, late.ID = time.Unix(10, 0).UTC(), 1
	for _, name := range []string{late.String(), early.String(), "verdicts/readme.txt"} {
		_, err := sinks.Put(t.Context(), s, name, []byte("{}"), sinks.CreateOptions{})
		require.NoError(t, err)
	}
	var got []repository.VerdictName
	for v, err := range r.Verdicts(t.Context()) {
		require.NoError(t, err)
		if v.Object.Size != 2 {
			t.Errorf("%+v", v)
		}
		got = append(got, v.VerdictName)
	}
	if !slices.Equal(got, []repository.VerdictName{early, late}) {
		t.Fatalf("got %v", got)
	}
	if ids, err := r.TimelineIDs(t.Context()); err != nil || len(ids) > 0 {
		t.Fatalf("the folder of verdicts is taken for timelines: %v, %v", ids, err)
	}
}
