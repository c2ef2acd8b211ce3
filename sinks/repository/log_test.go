package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

func TestLogLists(t *testing.T) {
	r := newRepository(t)
	other := repository.TimelineID{ClusterID: logTimeline.ClusterID, N: 33}
	segments := []repository.SegmentName{{Timeline: logTimeline, First: 1}, {Timeline: logTimeline, First: 300}, {Timeline: logTimeline, Level: 1, First: 1, Last: 299}, {Timeline: logTimeline, Level: 2, First: 1, Last: 2}}
	mark := repository.MarkName{Timeline: logTimeline, Index: 7, Time: time.Unix(5, 6).UTC(), Member: 8}
	gap := repository.GapName{Timeline: logTimeline, First: 5, Last: 6}
	names := []string{mark.String(), gap.String(), repository.SegmentName{Timeline: other, First: 1}.String(), logTimeline.String() + "/l0/notes", logTimeline.String() + "/marks/notes", logTimeline.String() + "/lost"}
	for _, n := range segments {
		names = append(names, n.String())
	}
	for i, name := range names {
		_, err := sinks.Put(t.Context(), r.Sink(), name, make([]byte, i), sinks.CreateOptions{})
		require.NoError(t, err)
	}
	gotSegments, err := r.Segments(t.Context(), logTimeline)
	if err != nil || len(gotSegments) != len(segments) {
		t.Fatalf("%+v, %v", gotSegments, err)
	}
	for i, got := range gotSegments {
		if got.SegmentName != segments[i] || got.Object.Name != segments[i].String() || got.Object.Size != int64(6+i) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got, err := r.Marks(t.Context(), logTimeline); err != nil || !slices.Equal(got, []repository.MarkName{mark}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Gaps(t.Context(), logTimeline); err != nil || !slices.Equal(got, []repository.GapName{gap}) {
		t.Errorf("%+v, %v", got, err)
	}
	if ids, err := r.TimelineIDs(t.Context()); err != nil || !slices.Equal(ids, []repository.TimelineID{logTimeline, other}) {
		t.Errorf("%v, %v", ids, err)
	}
}

// Promise 6: a timeline ends once, and stays ended.
func TestPromise6Superseded(t *testing.T) {
	r := newRepository(t)
	if _, ended, err := r.Superseded(t.Context(), logTimeline); ended || err != nil {
		t.Fatalf("%v, %v", ended, err)
	}
	next := repository.TimelineID{ClusterID: 5, N: 1}
	want := repository.Superseded{Timeline: logTimeline, By: next, At: 12345, Reason: "recovered", Created: time.Now().UTC().Round(0)}
	require.NoError(t, r.Supersede(t.Context(), want))
	second := want
	second.By.N = 2
	require.ErrorIs(t, r.Supersede(t.Context(), second), sinks.ErrExists, "a second time")
	got, ended, err := r.Superseded(t.Context(), logTimeline)
	want.Format = repository.Format
	if !ended || err != nil || got != want {
		t.Errorf("%+v, %v, %v", got, ended, err)
	}
	require.Error(t, r.Supersede(t.Context(), repository.Superseded{Timeline: next, By: next}), "a timeline was superseded by itself")
	// A copy under another timeline's name ends nothing, and is no silence either.
	data, err := sinks.Get(t.Context(), r.Sink(), repository.SupersededName(logTimeline, 1), 1<<20)
	require.NoError(t, err)
	_, err = sinks.Put(t.Context(), r.Sink(), repository.SupersededName(next, 1), data, sinks.CreateOptions{})
	require.NoError(t, err)
	_, _, err = r.Superseded(t.Context(), next)
	require.ErrorIs(t, err, repository.ErrAltered, "a copy")
	newer := repository.TimelineID{ClusterID: 6, N: 1}
	data, err = repository.Seal(repository.Superseded{Format: 9, Timeline: newer, By: next})
	require.NoError(t, err)
	_, err = sinks.Put(t.Context(), r.Sink(), repository.SupersededName(newer, 1), data, sinks.CreateOptions{})
	require.NoError(t, err)
	_, _, err = r.Superseded(t.Context(), newer)
	require.ErrorContains(t, err, "format 9", "a newer format")
}
