package repository_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

var logTimeline = repository.TimelineID{ClusterID: 0xcdf818194e3a8c32, N: 3}

func TestSegmentNames(t *testing.T) {
	for want, n := range map[string]repository.SegmentName{
		"cdf818194e3a8c32-3/l0/0000000000000001":                        {Timeline: logTimeline, First: 1},
		"cdf818194e3a8c32-3/l0/ffffffffffffffff":                        {Timeline: logTimeline, First: math.MaxUint64},
		"cdf818194e3a8c32-3/l1/0000000000000001-00000000000000ff":       {Timeline: logTimeline, Level: 1, First: 1, Last: 255},
		"cdf818194e3a8c32-3/l1/0000000000000001-00000000000000ff-start": {Timeline: logTimeline, Level: 1, First: 1, Last: 255, Start: true},
		"cdf818194e3a8c32-3/l9/0000000000000001-0000000000000001":       {Timeline: logTimeline, Level: 9, First: 1, Last: 1},
	} {
		got, err := repository.ParseSegmentName(want)
		if n.String() != want || err != nil || got != n {
			t.Errorf("%s is read as %+v, %v, and %+v written as %s", want, got, err, n, n)
		}
		if err := sinks.ValidName(want); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "cdf818194e3a8c32-3", "cdf818194e3a8c32-3/l0/", "cdf818194e3a8c32-3/l0/1", "cdf818194e3a8c32-3/l0/00000000000000FF",
		"cdf818194e3a8c32-3/l0/0000000000000001-00000000000000ff", "cdf818194e3a8c32-3/l1/0000000000000001",
		"cdf818194e3a8c32-3/l0/0000000000000002-0000000000000001-start", "cdf818194e3a8c32-3/l1/0000000000000001-0000000000000001-start-start",
		"cdf818194e3a8c32-3/l1/0000000000000002-0000000000000001", "cdf818194e3a8c32-3/l10/0000000000000001-0000000000000001",
		"cdf818194e3a8c32-3/l-1/0000000000000001-0000000000000001", "cdf818194e3a8c32-3/l0/0000000000000001.json",
		"cdf818194e3a8c32-0/l0/0000000000000001", "x/cdf818194e3a8c32-3/l0/0000000000000001", "cdf818194e3a8c32-3/l0/0000000000000001/x",
		"cdf818194e3a8c32-3/full/20260102T150405Z-3f9a2c/manifest.json", "cdf818194e3a8c32-3/l01/0000000000000001-0000000000000001",
	} {
		if n, err := repository.ParseSegmentName(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, n)
		}
	}
}

func TestMarkNames(t *testing.T) {
	n := repository.MarkName{Timeline: logTimeline, Index: 255, Time: time.Unix(1, 5).In(time.FixedZone("", 3600)), Member: math.MaxUint64}
	want := "cdf818194e3a8c32-3/marks/00000000000000ff-000000003b9aca05-ffffffffffffffff.json"
	got, err := repository.ParseMarkName(want)
	if n.String() != want || err != nil || got.Index != n.Index || got.Member != n.Member || !got.Time.Equal(n.Time) || got.Time.Location() != time.UTC {
		t.Errorf("%s is read as %+v, %v, and written as %s", want, got, err, n)
	}
	for _, bad := range []string{
		"", strings.TrimSuffix(want, ".json"), want + ".json", strings.ToUpper(want), strings.Replace(want, "-0", "-", 1),
		strings.Replace(want, "000000003b9aca05", "ffffffffffffffff", 1), // before 1970
		strings.Replace(want, "marks", "gaps", 1),
	} {
		if n, err := repository.ParseMarkName(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, n)
		}
	}
}

func TestGapNames(t *testing.T) {
	n := repository.GapName{Timeline: logTimeline, First: 16, Last: 31}
	want := "cdf818194e3a8c32-3/gaps/0000000000000010-000000000000001f.json"
	if got, err := repository.ParseGapName(want); n.String() != want || err != nil || got != n {
		t.Errorf("%s is read as %+v, %v, and written as %s", want, got, err, n)
	}
	for _, bad := range []string{"", strings.TrimSuffix(want, ".json"), strings.Replace(want, "-0000000000000010", "-0000000000000001", 1) + "x", "cdf818194e3a8c32-3/gaps/0000000000000002-0000000000000001.json"} {
		if n, err := repository.ParseGapName(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, n)
		}
	}
}

// Names that sort are in the order of what they name, and no name is a folder of
// another one.
func TestLogNamesSort(t *testing.T) {
	var names []string
	for _, i := range []uint64{1, 9, 10, 255, 1 << 40, math.MaxUint64} {
		names = append(names, repository.SegmentName{Timeline: logTimeline, First: i}.String())
	}
	for _, i := range []uint64{1, 9, 10, 255, 1 << 40} {
		names = append(names, repository.SegmentName{Timeline: logTimeline, Level: 1, First: i, Last: 1 << 41}.String())
	}
	for _, sec := range []int64{1, 1_000_000_000, 9_000_000_000} {
		names = append(names, repository.MarkName{Timeline: logTimeline, Index: 5, Time: time.Unix(sec, 0)}.String())
	}
	names = append(names, repository.SupersededName(logTimeline, 1))
	if !slices.IsSorted(names) {
		t.Errorf("%q", names)
	}
	for _, a := range names {
		for _, b := range names {
			if strings.HasPrefix(b, a+"/") {
				t.Errorf("%s is a folder of %s", a, b)
			}
		}
	}
}

func TestLogLists(t *testing.T) {
	s, _ := newSink(t)
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	other := repository.TimelineID{ClusterID: logTimeline.ClusterID, N: 33}
	segments := []repository.SegmentName{{Timeline: logTimeline, First: 1}, {Timeline: logTimeline, First: 300}, {Timeline: logTimeline, Level: 1, First: 1, Last: 299}, {Timeline: logTimeline, Level: 2, First: 1, Last: 2}}
	mark := repository.MarkName{Timeline: logTimeline, Index: 7, Time: time.Unix(5, 6).UTC(), Member: 8}
	gap := repository.GapName{Timeline: logTimeline, First: 5, Last: 6}
	names := []string{mark.String(), gap.String(), repository.SegmentName{Timeline: other, First: 1}.String(), logTimeline.String() + "/l0/notes", logTimeline.String() + "/marks/notes", logTimeline.String() + "/lost"}
	for _, n := range segments {
		names = append(names, n.String())
	}
	for i, name := range names {
		_, err = sinks.Put(t.Context(), s, name, make([]byte, i), sinks.CreateOptions{})
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
	s, _ := newSink(t)
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
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
	data, err := sinks.Get(t.Context(), s, repository.SupersededName(logTimeline, 1), 1<<20)
	require.NoError(t, err)
	_, err = sinks.Put(t.Context(), s, repository.SupersededName(next, 1), data, sinks.CreateOptions{})
	require.NoError(t, err)
	_, _, err = r.Superseded(t.Context(), next)
	require.ErrorIs(t, err, repository.ErrAltered, "a copy")
	newer := repository.TimelineID{ClusterID: 6, N: 1}
	data, err = repository.Seal(repository.Superseded{Format: 9, Timeline: newer, By: next})
	require.NoError(t, err)
	_, err = sinks.Put(t.Context(), s, repository.SupersededName(newer, 1), data, sinks.CreateOptions{})
	require.NoError(t, err)
	_, _, err = r.Superseded(t.Context(), newer)
	require.ErrorContains(t, err, "format 9", "a newer format")
}

// FuzzLogNames reads arbitrary names. What is read has no second spelling.
func FuzzLogNames(f *testing.F) {
	f.Add(repository.SegmentName{Timeline: logTimeline, First: 1}.String())
	f.Add(repository.SegmentName{Timeline: logTimeline, Level: 1, First: 1, Last: 2}.String())
	f.Add(repository.MarkName{Timeline: logTimeline, Index: 1, Time: time.Unix(5, 6), Member: 2}.String())
	f.Add(repository.GapName{Timeline: logTimeline, First: 1, Last: 2}.String())
	f.Fuzz(func(t *testing.T, name string) {
		read := 0
		for _, parse := range []func(string) (fmt.Stringer, error){
			func(s string) (fmt.Stringer, error) { return repository.ParseSegmentName(s) },
			func(s string) (fmt.Stringer, error) { return repository.ParseMarkName(s) },
			func(s string) (fmt.Stringer, error) { return repository.ParseGapName(s) },
		} {
			n, err := parse(name)
			if err != nil {
				continue
			}
			if read++; n.String() != name || sinks.ValidName(name) != nil || read > 1 {
				t.Fatalf("%q is read as %+v, %d times", name, n, read)
			}
		}
	})
}
