package segment

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// run makes consecutive pieces of a history whose chain begins at the first.
func run(history string, level int, bounds ...uint64) []piece {
	var all []piece
	for i := 1; i < len(bounds); i++ {
		p := piece{history, bounds[0], bounds[i-1], bounds[i] - 1, level, nil, 0}
		if level == 0 && i > 1 {
			p.previous = bounds[i-2]
		}
		all = append(all, p)
	}
	return all
}

// Any range of a plain log is read exactly.
func TestEntriesOfAnyRange(t *testing.T) {
	l := stored(t, sinktest.NewMemory(), run("a", 0, 5, 10, 11, 30, 42)...)
	for first := uint64(5); first <= 41; first++ {
		for last := first; last <= 41; last++ {
			wantEntries(t, l, "a", first, last)
		}
	}
	got, err := collect(t, l, 12, 0)
	if err != nil || len(got) != 30 {
		t.Errorf("to the end: %d entries, %v", len(got), err)
	}
	if got, err := collect(t, l, 42, 41); err != nil || len(got) != 0 {
		t.Errorf("nothing: %d entries, %v", len(got), err)
	}
}

// What is not there is said before anything is yielded.
func TestEntriesMissing(t *testing.T) {
	l := stored(t, sinktest.NewMemory(), append(run("a", 0, 5, 10, 20), run("a", 0, 30, 40)...)...)
	for _, c := range []struct{ first, last, missing, to uint64 }{
		{1, 10, 1, 10}, {5, 30, 20, 30}, {18, 25, 20, 25}, {20, 25, 20, 25}, {22, 0, 22, 22}, {40, 0, 40, 40}, {35, 41, 40, 41}, {1000, 2000, 1000, 2000},
	} {
		got, err := collect(t, l, c.first, c.last)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.First != c.missing || missing.Last != c.to || len(got) > 0 {
			t.Errorf("%d to %d: %d entries, %v", c.first, c.last, len(got), err)
		}
	}
	if got, err := collect(t, l, 7, 0); err != nil || len(got) != 13 {
		t.Errorf("to the gap: %d entries, %v", len(got), err)
	}
}

// Merged segments are preferred, and every cover gives the same.
func TestEntriesPreferMerged(t *testing.T) {
	pieces := append(run("a", 0, 1, 10, 20, 30, 40, 50, 60), piece{"a", 1, 1, 29, 1, nil, 0}, piece{"a", 1, 30, 49, 1, nil, 0}, piece{"a", 1, 1, 49, 2, nil, 0})
	s := sinktest.NewFaulty(sinktest.NewMemory())
	l := stored(t, s, pieces...)
	before := s.Calls(sinktest.Open)
	wantEntries(t, l, "a", 1, 59)
	if n := s.Calls(sinktest.Open) - before; n != 2 {
		t.Errorf("%d bodies were read, not the one of level 2 and the last of level 0", n)
	}
	for first := uint64(1); first < 60; first += 7 {
		wantEntries(t, l, "a", first, 59)
	}
}

// Of two with the same range, the one of the higher level.
func TestEntriesPreferTheHighestLevel(t *testing.T) {
	s := sinktest.NewFaulty(sinktest.NewMemory())
	l := stored(t, s, piece{"a", 1, 1, 59, 1, nil, 0}, piece{"a", 1, 1, 59, 2, nil, 0}, piece{"a", 1, 1, 59, 0, nil, 0})
	s.Add(sinktest.Fail(sinktest.Open, 1, nil).Of("/l0/").Always(), sinktest.Fail(sinktest.Open, 1, nil).Of("/l1/").Always())
	wantEntries(t, l, "a", 1, 59)
	if n := s.Fired(); n > 0 {
		t.Error("a lower level was read")
	}
}

// Promise 4 of this package: a damaged segment is replaced by others that hold
// its range, whatever the level, and named; without another one the error is the
// damage.
func TestEntriesFallBack(t *testing.T) {
	pieces := append(run("a", 0, 1, 10, 20, 30, 40, 50), piece{"a", 1, 1, 29, 1, nil, 0}, piece{"a", 1, 20, 49, 2, nil, 0})
	for i, p := range pieces {
		for _, part := range []string{"header", "body", "end"} {
			s := sinktest.NewMemory()
			repo := newRepo(t, s)
			for _, p := range pieces {
				p.store(t, s)
			}
			h, data := p.encode(t)
			at := map[string]int{"header": 100, "body": HeaderSize + 20, "end": len(data) - 1}[part]
			data[at] ^= 1
			overwrite(t, s, h.Name(), data)
			l := openLog(t, repo)
			wantEntries(t, l, "a", 1, 49)
			for _, other := range l.Headers() { // read everything, so that the damage is met
				_, _, _ = l.body(t.Context(), other)
			}
			found := l.Damaged()
			if len(found) != 1 || found[0].Name != h.Name() {
				t.Errorf("piece %d, %s: damaged are %v", i, part, found)
			}
			wantEntries(t, l, "a", 1, 49)
		}
	}

	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	for _, p := range run("a", 0, 1, 10, 20, 30) {
		p.store(t, s)
	}
	for _, at := range []int{100, HeaderSize + 20} {
		h, data := piece{"a", 1, 10, 19, 0, nil, 1}.encode(t)
		data[at] ^= 1
		overwrite(t, s, h.Name(), data)
		got, err := collect(t, openLog(t, repo), 1, 29)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.First != 10 || len(got) > 9 {
			t.Errorf("byte %d: %d entries, %v", at, len(got), err)
		}
		wantDamaged(t, "without another one", err)
		if !strings.Contains(err.Error(), h.Name()) {
			t.Errorf("the error does not name %s: %v", h.Name(), err)
		}
	}
}

// Segments that were merged and deleted while they are read: the listing is
// made anew, as often as there is progress between.
func TestEntriesOfDeletedSegments(t *testing.T) {
	s := sinktest.NewFaulty(sinktest.NewMemory())
	bounds := []uint64{1}
	for i := uint64(10); i <= 600; i += 10 {
		bounds = append(bounds, i)
	}
	pieces := run("a", 0, bounds...)
	l := stored(t, s, pieces...)
	lists := s.Calls(sinktest.List)
	merge := func(first, last uint64) {
		piece{"a", 1, first, last, 1, nil, 0}.store(t, s)
		for _, p := range pieces {
			if h, _ := p.encode(t); first <= p.first && p.last <= last {
				require.NoError(t, s.Delete(t.Context(), h.Name()))
			}
		}
	}
	var got []raftlog.Entry
	for e, err := range l.Entries(t.Context(), 3, 599) {
		require.NoError(t, err)
		if got = append(got, e); e.Index == 5 {
			merge(10, 159)
		} else if e.Index == 150 { // far behind it, what is not fetched yet
			merge(400, 599)
		}
	}
	if !slices.EqualFunc(got, entriesOf("a", 3, 599), raftlog.Entry.Equal) {
		t.Errorf("got %d entries", len(got))
	}
	if n := s.Calls(sinktest.List) - lists; n == 0 || n > 2*5 {
		t.Errorf("%d listings", n)
	}

	// Gone for good.
	require.NoError(t, s.Delete(t.Context(), l.Headers()[0].Name()))
	_, err := collect(t, l, 3, 599)
	var missing *MissingError
	if !errors.As(err, &missing) || missing.First != 3 {
		t.Errorf("gone: %v", err)
	}
}

// A listing may show what is gone for longer than a reader looks: others that hold
// the same stand in.
func TestEntriesOfASegmentThatStaysListed(t *testing.T) {
	s := &ghost{Sink: sinktest.NewMemory()}
	l := stored(t, s, append(run("a", 0, 1, 10, 20, 30), piece{"a", 1, 10, 19, 1, nil, 0})...)
	s.name = repository.SegmentName{Timeline: testTimeline, Level: 1, First: 10, Last: 19}.String()
	wantEntries(t, l, "a", 1, 29)
	if s.met < 2 {
		t.Errorf("it was looked for %d times, and not again", s.met)
	}
	// Where nothing stands in, they are missing.
	s.name = l.Headers()[0].Name()
	_, err := collect(t, l, 1, 29)
	var missing *MissingError
	if !errors.As(err, &missing) || missing.First != 1 || !errors.Is(err, sinks.ErrNotFound) {
		t.Errorf("gone: %v", err)
	}
}

// ghost lists an object that it does not give.
type ghost struct {
	sinks.Sink
	name string
	mu   sync.Mutex
	met  int
}

func (g *ghost) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if name == g.name {
		g.mu.Lock()
		defer g.mu.Unlock()
		if length < 0 { // the header alone can still be had from a cache
			g.met++
			return nil, sinks.ErrNotFound
		}
	}
	return g.Sink.Open(ctx, name, offset, length)
}

// What is stored anew under a name that was freed is not taken for what was
// listed there, be it longer or shorter.
func TestEntriesOfARenewedSegment(t *testing.T) {
	for _, last := range []uint64{24, 14} {
		s := sinktest.NewMemory()
		l := stored(t, s, run("a", 0, 1, 10, 20, 30)...)
		h := l.Headers()[1]
		require.NoError(t, s.Delete(t.Context(), h.Name()))
		piece{"a", 1, 10, last, 0, nil, 0}.store(t, s)
		if last == 24 {
			wantEntries(t, l, "a", 1, 29)
			continue
		}
		got, err := collect(t, l, 1, 29)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.First != 15 || !slices.EqualFunc(got, entriesOf("a", 1, uint64(len(got))), raftlog.Entry.Equal) {
			t.Errorf("%d entries, %v", len(got), err)
		}
	}
}

// A filler reaches over the chain start behind it by one entry, which joins them.
func TestEntriesAcrossAFilledGap(t *testing.T) {
	pieces := append(run("a", 0, 1, 50, 80, 101), run("a", 0, 100, 150, 200)...)
	l := stored(t, sinktest.NewMemory(), pieces...)
	for _, first := range []uint64{1, 60, 99, 100, 101, 150} {
		wantEntries(t, l, "a", first, 199)
	}
	// The whole chain start inside of a segment of the other chain, and another
	// filler far over it.
	for _, filler := range [][]uint64{{1, 50, 171}, {1, 50, 121, 171}, {1, 201}} {
		l := stored(t, sinktest.NewMemory(), append(run("a", 0, filler...), run("a", 0, 100, 150, 170, 230)...)...)
		wantEntries(t, l, "a", 1, 229)
		wantEntries(t, l, "a", 120, 229)
	}
}

// A chain start and a segment that goes on without a break begin at the same entry, and
// either may end first: the one joins the other to what is before both.
func TestPromise6ChainStartBesideAJoinedSegment(t *testing.T) {
	for _, ends := range [][2]uint64{{121, 110}, {110, 121}, {111, 111}} {
		pieces := append(run("a", 0, 1, 100, ends[0]), run("a", 0, 100, ends[1], 200)...)
		for _, open := range []func(*testing.T, *repository.Repository) (*Log, error){
			func(t *testing.T, repo *repository.Repository) (*Log, error) {
				return OpenLog(t.Context(), repo, testTimeline, nil)
			},
			func(t *testing.T, repo *repository.Repository) (*Log, error) {
				return OpenNames(t.Context(), repo, testTimeline, nil)
			},
		} {
			l, err := open(t, stored(t, sinktest.NewMemory(), pieces...).repo)
			require.NoError(t, err)
			require.Len(t, l.Coverage(), 1, "%v", ends)
			wantEntries(t, l, "a", 1, 199)
		}
	}
}

// A chain start that follows without an overlap is not joined: nothing proves that
// it goes on from there.
func TestPromise6ChainStartWithoutOverlapIsABreak(t *testing.T) {
	l := stored(t, sinktest.NewMemory(), append(run("a", 0, 1, 50, 100), run("a", 0, 100, 150, 200)...)...)
	wantEntries(t, l, "a", 1, 99)
	wantEntries(t, l, "a", 100, 199)
	_, err := collect(t, l, 1, 149)
	var missing *MissingError
	if !errors.As(err, &missing) || missing.First != 100 {
		t.Errorf("got %v", err)
	}
	// By names alone it is known, too.
	byNames, err := OpenNames(t.Context(), l.repo, testTimeline, nil)
	require.NoError(t, err)
	require.Equal(t, l.Coverage(), byNames.Coverage())
	require.Len(t, byNames.Coverage(), 2)
}

// Overlapping segments of different histories are a fork, found by the chain or
// by the entries, and nothing from behind it is yielded.
func TestPromise6ForksAreFound(t *testing.T) {
	forked := func(p piece, from uint64, history string) piece { p.history = history; p.origin = from; return p }
	for name, c := range map[string]struct {
		pieces      []piece
		first, last uint64
		before      uint64 // entries that may be yielded
	}{
		"a chain start whose first entry differs": {append(run("a", 0, 1, 50, 101), run("b", 0, 100, 150)...), 1, 149, 100},
		"a chain start, far over":                 {append(run("a", 0, 1, 50, 111), run("b", 0, 100, 150)...), 1, 149, 110},
		"an overlap of another chain":             {append(run("a", 0, 1, 50, 111), forked(piece{first: 100, last: 150}, 1, "b")), 1, 149, 110},
		"two ends of one beginning":               {append(run("a", 1, 1, 50, 100), forked(piece{first: 1, last: 99, level: 2}, 1, "b")), 1, 99, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := stored(t, sinktest.NewMemory(), c.pieces...)
			got, err := collect(t, l, c.first, c.last)
			var fork *ForkError
			if !errors.As(err, &fork) {
				t.Fatalf("%d entries, %v", len(got), err)
			}
			if uint64(len(got)) > c.before || fork.Index > c.before && c.before > 0 || fork.Objects[0] == fork.Objects[1] {
				t.Errorf("%d entries, %v", len(got), err)
			}
		})
	}
	// Behind the end of one branch there is only the other; before the fork both
	// are one.
	l := stored(t, sinktest.NewMemory(), append(run("a", 0, 1, 50, 100), piece{"b", 50, 50, 60, 1, nil, 0})...)
	wantEntries(t, l, "a", 1, 49)
	wantEntries(t, l, "a", 1, 99)
}

// A chain value that differs is no join, and contiguous segments that do not
// agree are not read as one.
func TestPromise6ContiguousOfAnotherChain(t *testing.T) {
	l := stored(t, sinktest.NewMemory(), append(run("a", 0, 1, 50), piece{"b", 1, 50, 99, 0, nil, 0})...)
	_, err := collect(t, l, 1, 99)
	var missing *MissingError
	if !errors.As(err, &missing) || missing.First != 50 {
		t.Errorf("got %v", err)
	}
	if spans := l.Coverage(); len(spans) != 2 || spans[1].FirstIndex != 50 {
		t.Errorf("spans %+v", spans)
	}
}

// A join that only reading can prove: nothing links the two but an overlap.
func TestEntriesOfUnlinkedOverlap(t *testing.T) {
	l := stored(t, sinktest.NewMemory(), piece{"a", 1, 20, 60, 0, nil, 0}, piece{"a", 1, 50, 90, 0, nil, 0})
	wantEntries(t, l, "a", 20, 90)
	// Of different chains, though the entries are equal, and no chain start is there
	// to say why.
	l = stored(t, sinktest.NewMemory(), piece{"a", 1, 20, 60, 0, nil, 0}, piece{"a", 5, 50, 90, 0, nil, 0})
	_, err := collect(t, l, 20, 90)
	var fork *ForkError
	if !errors.As(err, &fork) || !errors.Is(err, errUnjoined) {
		t.Errorf("got %v", err)
	}
}

func TestEntriesWithoutIdentity(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	identity := newIdentity(t)
	for _, p := range run("a", 0, 1, 50, 100) {
		p.store(t, s, identity.Recipient())
	}
	l := openLog(t, repo)
	if spans := l.Coverage(); len(spans) != 1 || spans[0].LastIndex != 99 {
		t.Errorf("headers need no identity, but spans are %+v", spans)
	}
	_, err := collect(t, l, 1, 99)
	var missing *codec.IdentityError
	if !errors.As(err, &missing) || len(l.Damaged()) > 0 {
		t.Errorf("got %v", err)
	}
	wantEntries(t, openLog(t, repo, []age.Identity{identity}...), "a", 1, 99)
}

// A sink that fails ends the reading with its error: neither damage nor a gap.
func TestEntriesSinkFails(t *testing.T) {
	s := sinktest.NewFaulty(sinktest.NewMemory())
	l := stored(t, s, run("a", 0, 1, 10, 20, 30)...)
	s.Add(sinktest.Fail(sinktest.Open, 1, sinks.ErrDenied).Of("000014"))
	got, err := collect(t, l, 1, 29)
	if !errors.Is(err, sinks.ErrDenied) || len(got) != 19 || len(l.Damaged()) > 0 {
		t.Errorf("%d entries, %v", len(got), err)
	}
	s.AllFired(t)
}
