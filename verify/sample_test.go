package verify

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// merging is a sink on which something happens before an object is opened for the
// second time: its header was read then.
type merging struct {
	sinks.Sink
	name  string
	do    func()
	opens atomic.Int32
}

func (m *merging) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if name == m.name && m.opens.Add(1) == 2 {
		m.do()
	}
	return m.Sink.Open(ctx, name, offset, length)
}

// What replaces a chosen segment is read in its place, and only what was read is
// counted.
func TestSampleMergedMeanwhile(t *testing.T) {
	m := onMemory()
	w := newWorld(t, m)
	merged := worldTimeline.String() + "/l1/000000000000001f-0000000000000032"
	sink := &merging{Sink: m, name: l0(31), do: func() {
		w.segment("a", 1, 31, 50, 1)
		w.flip(merged, -5)
		w.remove(l0(31))
		w.remove(l0(41))
	}}
	repo, err := repository.Open(t.Context(), sink)
	w.must(err)
	r := (&world{T: t, sink: sink, repo: repo}).verify(Request{Sample: 100, Seed: 1})
	wantKinds(t, r, "segment l1/000000000000001f-0000000000000032")
	// Two snapshots, three small segments that stayed, and two merged ones.
	if s := r.Sample; s.Objects != 7 || s.ObjectsTotal != 7 || s.Bytes != s.BytesTotal || s.Coverage != "all objects were read" {
		t.Errorf("%+v", s)
	}
}

// A chosen snapshot or segment that is gone is not counted as read.
func TestSampleForgets(t *testing.T) {
	s := newSample([]object{{"a", 10}, {"b", 30}}, 100, 1)
	s.forget("a")
	s.forget("never listed")
	if got := s.told(); got.Objects != 1 || got.ObjectsTotal != 1 || got.Bytes != 30 || got.BytesTotal != 30 {
		t.Errorf("%+v", got)
	}
	s.listed["c"], s.ObjectsTotal = 5, 2
	s.forget("b")
	if got := s.told(); got.Objects != 0 || !strings.Contains(got.Coverage, "no object was read whole") {
		t.Errorf("%+v", got)
	}
}

// A verdict binds the segments that were read, and none that a sample left out.
func TestVerdictBindsWhatWasRead(t *testing.T) {
	w := newWorld(t, onMemory())
	ofLog := 0
	for seed := range uint64(20) {
		r := w.verify(Request{Sample: 20, Seed: seed})
		wantKinds(t, r)
		var ranges []report.Range
		objects := 0
		for _, one := range bound(r) {
			if len(one.Objects) > 0 {
				objects++
			}
			ranges = append(ranges, one.Log...)
		}
		var entries uint64
		for _, s := range ranges {
			objects += s.Objects
			entries += s.Last - s.First + 1
			ofLog++
			if s.After != w.chainAt(s.Last).String() {
				t.Errorf("seed %d: %+v has another chain value", seed, s)
			}
			// Level 0 has ten entries each, and level 1 has the first twenty.
			if most := uint64(10*s.Objects + 10); s.Last-s.First+1 > most {
				t.Errorf("seed %d: %+v claims more than was read", seed, s)
			}
		}
		if objects != r.Sample.Objects {
			t.Errorf("seed %d: %d objects are bound, %d were read", seed, objects, r.Sample.Objects)
		}
		if len(ranges) > 0 && entries >= 50 {
			t.Errorf("seed %d: %d objects bind the whole log: %+v", seed, objects, ranges)
		}
	}
	if ofLog == 0 {
		t.Error("no sample had a segment")
	}
	if all := bound(w.verify(Request{})); len(all) != 3 || len(all[2].Log) != 1 || all[2].Log[0].First != 1 || all[2].Log[0].Last != 50 || all[2].Log[0].Objects != 6 {
		t.Errorf("all of it: %+v", all)
	}
}
