package segment

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

// Whatever somebody adds to a log, who checks signatures reads the log that was there.
func TestForeignLog(t *testing.T) {
	pieces := run("a", 0, 1, 10, 20, 30, 40)
	last := pieces[len(pieces)-1].last
	forgeries := map[string]func(t *testing.T, s sinks.Sink, other *repository.Repository){
		"it goes on": func(t *testing.T, s sinks.Sink, _ *repository.Repository) {
			p := pieces[len(pieces)-1]
			piece{"a", 1, p.last + 1, p.last + 10, 0, nil, p.first}.store(t, s)
			piece{"a", 1, p.last + 11, p.last + 20, 0, nil, p.last + 1}.store(t, s)
		},
		"another history at its end": func(t *testing.T, s sinks.Sink, _ *repository.Repository) {
			piece{"b", 15, 15, last + 50, 0, nil, 0}.store(t, s)
		},
		"merged over all": func(t *testing.T, s sinks.Sink, _ *repository.Repository) {
			piece{"b", 1, 1, last + 50, 3, nil, 0}.store(t, s)
		},
		"merged within": func(t *testing.T, s sinks.Sink, _ *repository.Repository) {
			piece{"b", 11, 11, 20, 1, nil, 0}.store(t, s)
		},
		"a segment in the middle": func(t *testing.T, s sinks.Sink, _ *repository.Repository) {
			piece{"a", 1, 16, 18, 0, nil, 11}.store(t, s)
		},
		"marks and gaps": func(t *testing.T, _ sinks.Sink, other *repository.Repository) {
			if err := errors.Join(
				WriteMark(t.Context(), other, testTimeline, markOf(5, 1, start.Add(time.Hour))),
				WriteMark(t.Context(), other, testTimeline, markOf(last+5, 1, start.Add(time.Minute))),
				WriteGap(t.Context(), other, GapRecord{Timeline: testTimeline, First: last + 1, Last: 1 << 40, Reason: "forged", Created: start}),
			); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			place := sinktest.NewMemory()
			own := newRepo(t, repository.WithKeys(place, sinktest.NewKeys(t)))
			for _, p := range pieces {
				p.store(t, own.Sink())
			}
			other := newRepo(t, place)
			forge(t, place, other)
			if h, ok, err := Newest(t.Context(), own, testTimeline); err != nil || !ok || h.LastIndex != last {
				t.Errorf("the newest is %+v, %v, %v", h, ok, err)
			}
			byNames, err := OpenNames(t.Context(), own, testTimeline, nil)
			require.NoError(t, err)
			for _, l := range []*Log{byNames, openLog(t, own)} {
				wantEntries(t, l, "a", 1, last)
				if spans := l.Coverage(); len(spans) != 1 || spans[0].LastIndex != last {
					t.Errorf("spans %+v", spans)
				}
				if len(l.Damaged()) > 0 || len(l.Heartbeat()) > 0 || len(l.Gaps()) > 0 {
					t.Errorf("damaged %v, alive %v, gaps %v", l.Damaged(), l.Heartbeat(), l.Gaps())
				}
				if low, high, err := l.At(t.Context(), start.Add(time.Minute)); low != nil || high != nil || err != nil {
					t.Errorf("marks %v, %v, %v", low, high, err)
				}
			}
			if len(own.Unusable()) == 0 {
				t.Error("nothing is named")
			}
			// Without trust it is there: the forgery is one.
			if h, _, err := Newest(t.Context(), other, testTimeline); err != nil || h.LastIndex < last {
				t.Errorf("without trust the newest is %+v, %v", h, err)
			}
		})
	}
}

// A segment that was moved, or whose header was changed, is refused before its entries
// are read; and the longest header has room for a signature.
func TestSignedHeader(t *testing.T) {
	place, keys := sinktest.NewMemory(), sinktest.NewKeys(t)
	own := newRepo(t, repository.WithKeys(place, keys))
	long, _ := piece{"a", 1, 1, 10, 0, nil, 0}.encode(t)
	long.Tool = "requorum " + strings.Repeat("9", 100)
	long.FirstMark, long.LastMark, long.Marks = start.Add(1), start.Add(2), maxMarks
	long.FirstIndex, long.LastIndex, long.FirstTerm, long.LastTerm = 1<<63, 1<<63+9, 1<<63, 1<<63
	long.Previous, long.Revision = 1<<62, 1<<62
	long.Object.StoredSize, long.Object.RawSize = 1<<62, 1<<62
	if block, err := long.blockOf(own.Seal(long.Name(), long)); err != nil || len(block) != HeaderSize {
		t.Errorf("%d bytes, %v", len(block), err)
	}
	h, data := piece{"a", 1, 1, 10, 0, nil, 0}.encode(t)
	require.NoError(t, Put(t.Context(), own, h, data))
	_, _, err := Read(t.Context(), own, h.Name())
	require.NoError(t, err)
	signed, err := sinks.Get(t.Context(), place, h.Name(), 1<<20)
	require.NoError(t, err)
	// To another repository of the same owner.
	elsewhere := sinktest.NewMemory()
	another := newRepo(t, repository.WithKeys(elsewhere, keys))
	overwrite(t, elsewhere, h.Name(), signed)
	_, _, err = Read(t.Context(), another, h.Name())
	require.ErrorIs(t, err, repository.ErrUnsigned, "moved")
	// Another header before the same body, with the old signature.
	changed := h
	changed.Level = 1
	block, err := changed.block()
	require.NoError(t, err)
	overwrite(t, place, changed.Name(), append(block, signed[HeaderSize:]...))
	if _, err := ReadHeader(t.Context(), own, changed.Name()); !errors.Is(err, repository.ErrUnsigned) || !snapshot.IsDamaged(err) {
		t.Errorf("unsigned: %v", err)
	}
}

// An object that is no segment at all hides nothing by its name: it may be anybody's.
func TestGarbageAboveLog(t *testing.T) {
	place := sinktest.NewMemory()
	own := newRepo(t, repository.WithKeys(place, sinktest.NewKeys(t)))
	pieces := run("a", 0, 1, 10, 20, 30, 40)
	for _, p := range append(pieces, run("a", 1, 1, 20)...) {
		p.store(t, own.Sink())
	}
	last := pieces[len(pieces)-1].last
	garbage := repository.SegmentName{Timeline: testTimeline, Level: 3, First: 1, Last: math.MaxUint64, Start: true}
	_, err := sinks.Put(t.Context(), place, garbage.String(), make([]byte, HeaderSize+100), sinks.CreateOptions{})
	require.NoError(t, err)
	_, err = repository.ParseSegmentName(garbage.String())
	require.NoError(t, err)
	if h, ok, err := Newest(t.Context(), own, testTimeline); err != nil || !ok || h.LastIndex != last {
		t.Errorf("the newest ends at %d, not %d: %v, %v", h.LastIndex, last, ok, err)
	}
	byNames, err := OpenNames(t.Context(), own, testTimeline, nil)
	require.NoError(t, err)
	for _, l := range []*Log{byNames, openLog(t, own)} {
		wantEntries(t, l, "a", 1, last)
	}
}

// Another agent's merged segment, signed by a key that is not known here yet, is not
// removed: that agent may be about to remove what it covers.
func TestForeignMergedStays(t *testing.T) {
	place := sinktest.NewMemory()
	own := newRepo(t, repository.WithKeys(place, sinktest.NewKeys(t)))
	h, data := piece{"a", 1, 1, 10, 1, nil, 0}.encode(t)
	require.NoError(t, Put(t.Context(), newRepo(t, repository.WithKeys(place, sinktest.NewKeys(t))), h, data))
	m := NewMerger(MergeConfig{Repo: own, Timeline: testTimeline})
	require.ErrorIs(t, m.readBack(t.Context(), h), repository.ErrUnsigned, "it is believed")
	_, err := sinks.Get(t.Context(), place, h.Name(), 1<<20)
	require.NoError(t, err, "it was removed")
}
