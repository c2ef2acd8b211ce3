package segment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// Missing finds what is missing between segments, and before the first one where
// it has to be there, whatever is merged, overlaps or is damaged.
func TestMissing(t *testing.T) {
	zero := func(first, last uint64) piece { return piece{first: first, last: last} }
	merged := func(level int, first, last uint64) piece { return piece{level: level, first: first, last: last} }
	for name, c := range map[string]struct {
		pieces  []piece
		damaged []uint64 // segments that begin there
		from    uint64
		want    []Range
		last    uint64
	}{
		"nothing":                       {},
		"whole":                         {pieces: []piece{zero(1, 5), zero(6, 9)}, from: 3, last: 9},
		"a hole":                        {pieces: []piece{zero(1, 5), zero(9, 12)}, want: []Range{{6, 8}}, last: 12},
		"two, one before the first":     {pieces: []piece{zero(10, 15), zero(19, 22)}, from: 4, want: []Range{{4, 9}, {16, 18}}, last: 22},
		"may begin anywhere":            {pieces: []piece{zero(10, 15)}, last: 15},
		"overlapping":                   {pieces: []piece{zero(1, 8), zero(6, 7), zero(8, 12)}, last: 12},
		"merged in the hole":            {pieces: []piece{zero(1, 5), merged(1, 4, 10), zero(9, 12)}, last: 12},
		"merged ones, and a hole":       {pieces: []piece{merged(2, 1, 40), merged(1, 50, 60), zero(61, 65)}, want: []Range{{41, 49}}, last: 65},
		"a small one before the merged": {pieces: []piece{zero(1, 5), merged(1, 10, 20)}, want: []Range{{6, 9}}, last: 20},
		"damaged":                       {pieces: []piece{zero(1, 5), zero(6, 8), zero(9, 12)}, damaged: []uint64{6}, want: []Range{{6, 8}}, last: 12},
		"replaced beside it":            {pieces: []piece{zero(1, 5), zero(6, 8), merged(1, 6, 8), zero(9, 12)}, last: 12},
		"a merged one is damaged":       {pieces: []piece{merged(1, 1, 8), zero(1, 3), zero(6, 8), zero(9, 12)}, damaged: []uint64{1}, want: []Range{{1, 5}}, from: 1, last: 12},
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
			log, err := OpenLog(t.Context(), repo, testTimeline, nil)
			require.NoError(t, err)
			for range 3 { // the later ones know it
				got, last, err := log.Missing(c.from)
				if fmt.Sprint(got) != fmt.Sprint(c.want) || last != c.last || err != nil {
					t.Errorf("missing %v, to %d, %v; want %v, to %d", got, last, err, c.want, c.last)
				}
				require.NoError(t, log.Refresh(t.Context()))
			}
		})
	}
}

// To look again reads no header twice, none of a segment that a merged one
// replaces, and none that is known; what vanished since is found all the same.
func TestRefreshReadsLittle(t *testing.T) {
	sink := sinktest.NewMemory()
	counted := sinktest.NewFaulty(sink)
	log, err := OpenLog(t.Context(), newRepo(t, counted), testTimeline, nil)
	require.NoError(t, err)
	at := uint64(1)
	add := func(n, level int) (headers []Header) {
		for range n {
			p := piece{history: "a", origin: 1, level: level, first: at, last: at + 9}
			if at > 10 {
				p.previous = at - 10
			}
			headers = append(headers, p.store(t, sink))
			at += 10
		}
		return headers
	}
	look := func(what string, opens int, want ...Range) {
		t.Helper()
		before, lists := counted.Calls(sinktest.Open), counted.Calls(sinktest.List)
		require.NoError(t, log.Refresh(t.Context()))
		got, _, err := log.Missing(1)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: missing %v, %v; want %v", what, got, err, want)
		}
		if n := counted.Calls(sinktest.Open) - before; n != opens {
			t.Errorf("%s: %d reads, want %d", what, n, opens)
		}
		if n := counted.Calls(sinktest.List) - lists; n > 6 {
			t.Errorf("%s: %d listings", what, n)
		}
	}
	add(20, 0)
	piece{history: "a", origin: 1, level: 1, first: 1, last: 150}.store(t, sink)
	look("the first time", 1+5)
	look("again", 0)
	for _, h := range add(5, 0) {
		log.Know(h)
	}
	look("with what is known", 0)
	add(2, 0)
	look("with what is new", 2)
	require.NoError(t, sink.Delete(t.Context(), repository.SegmentName{Timeline: testTimeline, First: 221, Previous: 211}.String()))
	look("with a hole", 0, Range{221, 230})
}

// A segment that is cut short after its header was read holds nothing any more.
func TestRefreshSeesWhatIsCutShort(t *testing.T) {
	sink := sinktest.NewMemory()
	log, err := OpenLog(t.Context(), newRepo(t, sink), testTimeline, nil)
	require.NoError(t, err)
	missing := func() ([]Range, uint64, error) {
		if err := log.Refresh(t.Context()); err != nil {
			return nil, 0, err
		}
		return log.Missing(1)
	}
	for first := uint64(1); first < 30; first += 10 {
		h := piece{history: "a", origin: 1, first: first, last: first + 9}.store(t, sink)
		log.Know(h)
		if first == 11 {
			if got, _, err := missing(); len(got) > 0 || err != nil {
				t.Fatal(got, err)
			}
			data, err := sinks.Get(t.Context(), sink, h.Name(), h.Size())
			require.NoError(t, err)
			overwrite(t, sink, h.Name(), data[:len(data)-1])
		}
	}
	if got, last, err := missing(); fmt.Sprint(got) != fmt.Sprint([]Range{{11, 20}}) || last != 30 || err != nil {
		t.Errorf("missing %v, to %d, %v", got, last, err)
	}
}

// What joins two chains is read, also where by its indexes alone another segment
// replaces it: what was spooled and stored late lies over a chain start, a filler over
// one of a single entry.
func TestWhatJoinsChainsIsRead(t *testing.T) {
	for name, pieces := range map[string][]piece{
		"spooled ones stored over a chain start": {
			{history: "a", origin: 1, first: 1, last: 10},
			{history: "a", origin: 1, first: 11, last: 20, level: 1}, {history: "a", origin: 1, first: 21, last: 30, level: 1},
			{history: "a", origin: 25, first: 25, last: 28}, {history: "a", origin: 25, first: 29, last: 33, previous: 25}, {history: "a", origin: 25, first: 34, last: 80, previous: 29},
		},
		"a filler over a chain start of one entry": {
			{history: "a", origin: 1, first: 1, last: 50}, {history: "a", origin: 1, first: 51, last: 61, level: 1},
			{history: "a", origin: 61, first: 61, last: 61}, {history: "a", origin: 61, first: 62, last: 70, previous: 61}, {history: "a", origin: 61, first: 71, last: 80, previous: 62},
		},
		"the same, merged after it": {
			{history: "a", origin: 1, first: 1, last: 50}, {history: "a", origin: 1, first: 51, last: 61, level: 1},
			{history: "a", origin: 61, first: 61, last: 61}, {history: "a", origin: 61, first: 62, last: 70, level: 1}, {history: "a", origin: 61, first: 71, last: 80, previous: 62},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := stored(t, sinktest.NewMemory(), pieces...)
			if missing, last, err := l.Missing(1); len(missing) > 0 || last != 80 || err != nil {
				t.Errorf("missing %v, to %d, %v", missing, last, err)
			}
			if spans := l.Coverage(); len(spans) != 1 {
				t.Errorf("spans %+v", spans)
			}
			wantEntries(t, l, "a", 1, 80)
		})
	}
}
