package segment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// Cover finds what is missing between segments, and before the first one where
// it has to be there, whatever is merged, overlaps or is damaged.
func TestCoverFindsHoles(t *testing.T) {
	zero := func(first, last uint64) piece { return piece{first: first, last: last} }
	merged := func(level int, first, last uint64) piece { return piece{level: level, first: first, last: last} }
	for name, c := range map[string]struct {
		pieces  []piece
		damaged []uint64 // segments that begin there
		from    uint64
		want    []Run
		last    uint64
	}{
		"nothing":                       {},
		"whole":                         {pieces: []piece{zero(1, 5), zero(6, 9)}, from: 3, last: 9},
		"a hole":                        {pieces: []piece{zero(1, 5), zero(9, 12)}, want: []Run{{6, 8}}, last: 12},
		"two, one before the first":     {pieces: []piece{zero(10, 15), zero(19, 22)}, from: 4, want: []Run{{4, 9}, {16, 18}}, last: 22},
		"may begin anywhere":            {pieces: []piece{zero(10, 15)}, last: 15},
		"overlapping":                   {pieces: []piece{zero(1, 8), zero(6, 7), zero(8, 12)}, last: 12},
		"merged in the hole":            {pieces: []piece{zero(1, 5), merged(1, 4, 10), zero(9, 12)}, last: 12},
		"merged ones, and a hole":       {pieces: []piece{merged(2, 1, 40), merged(1, 50, 60), zero(61, 65)}, want: []Run{{41, 49}}, last: 65},
		"a small one before the merged": {pieces: []piece{zero(1, 5), merged(1, 10, 20)}, want: []Run{{6, 9}}, last: 20},
		"damaged":                       {pieces: []piece{zero(1, 5), zero(6, 8), zero(9, 12)}, damaged: []uint64{6}, want: []Run{{6, 8}}, last: 12},
		"replaced beside it":            {pieces: []piece{zero(1, 5), zero(6, 8), merged(1, 6, 8), zero(9, 12)}, last: 12},
		"a merged one is damaged":       {pieces: []piece{merged(1, 1, 8), zero(1, 3), zero(6, 8), zero(9, 12)}, damaged: []uint64{1}, want: []Run{{1, 5}}, from: 1, last: 12},
	} {
		t.Run(name, func(t *testing.T) {
			sink := sinktest.NewMemory()
			repo := newRepo(t, sink)
			for _, p := range c.pieces {
				p.history, p.origin = "a", 1
				h := p.store(t, sink)
				if slices.Contains(c.damaged, p.first) {
					overwrite(t, sink, h.Name(), []byte("short"))
				}
			}
			cover := NewCover(repo, testTimeline)
			for range 3 { // the later ones know it
				got, last, err := cover.Missing(t.Context(), c.from)
				if fmt.Sprint(got) != fmt.Sprint(c.want) || last != c.last || err != nil {
					t.Errorf("missing %v, to %d, %v; want %v, to %d", got, last, err, c.want, c.last)
				}
			}
		})
	}
}

// To look again reads no header twice, none of a segment that a merged one
// replaces, and none that is known; what vanished since is found all the same.
func TestCoverReadsLittle(t *testing.T) {
	sink := sinktest.NewMemory()
	counted := sinktest.NewFaulty(sink)
	cover := NewCover(newRepo(t, counted), testTimeline)
	at := uint64(1)
	add := func(n, level int) (headers []Header) {
		for range n {
			headers = append(headers, piece{history: "a", origin: 1, level: level, first: at, last: at + 9}.store(t, sink))
			at += 10
		}
		return headers
	}
	look := func(what string, opens int, want ...Run) {
		t.Helper()
		before, lists := counted.Calls(sinktest.Open), counted.Calls(sinktest.List)
		got, _, err := cover.Missing(t.Context(), 1)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: missing %v, %v; want %v", what, got, err, want)
		}
		if n := counted.Calls(sinktest.Open) - before; n != opens {
			t.Errorf("%s: %d reads, want %d", what, n, opens)
		}
		if n := counted.Calls(sinktest.List) - lists; n > 3 {
			t.Errorf("%s: %d listings", what, n)
		}
	}
	add(20, 0)
	piece{history: "a", origin: 1, level: 1, first: 1, last: 150}.store(t, sink)
	look("the first time", 1+5)
	look("again", 0)
	for _, h := range add(5, 0) {
		cover.Know(h)
	}
	look("with what is known", 0)
	add(2, 0)
	look("with what is new", 2)
	if err := sink.Delete(t.Context(), repository.SegmentName{Timeline: testTimeline, First: 221}.String()); err != nil {
		t.Fatal(err)
	}
	look("with a hole", 0, Run{221, 230})
}

// A segment that is cut short after its header was read holds nothing any more.
func TestCoverSeesWhatIsCutShort(t *testing.T) {
	sink := sinktest.NewMemory()
	cover := NewCover(newRepo(t, sink), testTimeline)
	for first := uint64(1); first < 30; first += 10 {
		h := piece{history: "a", origin: 1, first: first, last: first + 9}.store(t, sink)
		cover.Know(h)
		if first == 11 {
			if got, _, err := cover.Missing(t.Context(), 1); len(got) > 0 || err != nil {
				t.Fatal(got, err)
			}
			data, err := sinks.Get(t.Context(), sink, h.Name(), h.Size())
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, sink, h.Name(), data[:len(data)-1])
		}
	}
	if got, last, err := cover.Missing(t.Context(), 1); fmt.Sprint(got) != fmt.Sprint([]Run{{11, 20}}) || last != 30 || err != nil {
		t.Errorf("missing %v, to %d, %v", got, last, err)
	}
}
