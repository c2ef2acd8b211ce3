package segment

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// What is written is read, on every kind of sink, with and without encryption;
// the header alone needs no identity.
func TestRoundTrip(t *testing.T) {
	identity := newIdentity(t)
	marks := []raftlog.Mark{markOf(30, 2, start.Add(time.Second)), markOf(20, 1, start.Add(2*time.Second).In(time.FixedZone("", 3600)))}
	for name, s := range map[string]sinks.Sink{"memory": sinktest.NewMemory(), "disk": newDisk(t)} {
		for encrypted, recipients := range map[bool][]age.Recipient{false: nil, true: {identity.Recipient()}} {
			p := piece{"a", 1, 11, 40, 0, marks, 0}
			if encrypted {
				p.first = 12
			}
			want := p.store(t, s, recipients...)
			object, err := s.Stat(t.Context(), want.Name())
			if err != nil || object.Size != want.Size() {
				t.Errorf("%s: %d bytes, its header says %d, %v", name, object.Size, want.Size(), err)
			}
			head, err := ReadHeader(t.Context(), newRepo(t, s), want.Name())
			if err != nil || !reflect.DeepEqual(head, want) {
				t.Errorf("%s: header %+v, %v; want %+v", name, head, err, want)
			}
			h, b, err := Read(t.Context(), newRepo(t, s), want.Name(), identity)
			if err != nil || !reflect.DeepEqual(h, want) {
				t.Fatalf("%s: %+v, %v", name, h, err)
			}
			if !slices.EqualFunc(b.Entries, entriesOf("a", p.first, 40), raftlog.Entry.Equal) {
				t.Errorf("%s: other entries", name)
			}
			if !reflect.DeepEqual(b.Marks, []raftlog.Mark{markOf(20, 1, start.Add(2*time.Second)), marks[0]}) {
				t.Errorf("%s: marks %v", name, b.Marks)
			}
			if !h.FirstMark.Equal(start.Add(time.Second)) || !h.LastMark.Equal(start.Add(2*time.Second)) || h.After != sumOf("a", 1, 40) || h.Object.Encrypted() != encrypted {
				t.Errorf("%s: %+v", name, h)
			}
			// Promise: who reads the header learns no recipient.
			if len(h.Object.Recipients) > 0 {
				t.Error("the header names recipients")
			}
		}
	}
}

// One first index has one name at level 0: of two writers one wins, whatever
// their codecs.
func TestOneNameDecides(t *testing.T) {
	s := sinktest.NewMemory()
	p := piece{"a", 1, 11, 40, 0, nil, 0}
	p.store(t, s)
	p.last = 50
	h, data := p.encode(t, newIdentity(t).Recipient())
	require.ErrorIs(t, Put(t.Context(), newRepo(t, s), h, data), sinks.ErrExists)
}

// Locks are for what lives long: merged segments.
func TestOnlyMergedSegmentsAreLocked(t *testing.T) {
	for level, want := range []bool{false, true} {
		s := &lockWatcher{Sink: sinktest.NewMemory()}
		piece{"a", 1, 11, 40, level, nil, 0}.store(t, s)
		if s.lock != want {
			t.Errorf("level %d: locked is %v", level, s.lock)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := entriesOf("a", 11, 20)
	change := func(f func([]raftlog.Entry)) []raftlog.Entry {
		c := slices.Clone(good)
		f(c)
		return c
	}
	sum := sumOf("a", 1, 10)
	for name, c := range map[string]struct {
		before     raftlog.Sum
		chainStart bool
		batch      Batch
		meta       Meta
		opts       Options
	}{
		"no entries":             {before: sum},
		"a hole":                 {before: sum, batch: Batch{Entries: change(func(e []raftlog.Entry) { e[5].Index++ })}},
		"a falling term":         {before: sum, batch: Batch{Entries: change(func(e []raftlog.Entry) { e[5].Term = 0 })}},
		"a term in between":      {before: sum, batch: Batch{Entries: change(func(e []raftlog.Entry) { e[5].Term = 9 })}},
		"index 0":                {chainStart: true, batch: Batch{Entries: []raftlog.Entry{{Index: 0, Term: 1}}}},
		"an index beyond":        {before: sum, batch: Batch{Entries: []raftlog.Entry{{Index: math.MaxUint64, Term: 1}, {Index: 0, Term: 1}}}},
		"chain start and before": {before: sum, chainStart: true, batch: Batch{Entries: good}},
		"neither":                {batch: Batch{Entries: good}},
		"mark outside":           {before: sum, batch: Batch{good, []raftlog.Mark{markOf(21, 1, start)}}},
		"mark of a term":         {before: sum, batch: Batch{good, []raftlog.Mark{{Index: 12, Term: 9, Time: start}}}},
		"mark without time":      {before: sum, batch: Batch{good, []raftlog.Mark{{Index: 12, Term: 1}}}},
		"a level":                {before: sum, batch: Batch{Entries: good}, opts: Options{Level: repository.MaxLevel + 1}},
		"a long tool":            {before: sum, batch: Batch{Entries: good}, opts: Options{Tool: strings.Repeat("x", HeaderSize)}},
		"a large frame":          {before: sum, batch: Batch{Entries: good}, opts: Options{Codec: codec.Options{FrameSize: 2 * codec.MaxFrameSize}}},
		"a revision":             {before: sum, batch: Batch{Entries: good}, meta: Meta{Revision: -1}},
		"too large":              {before: sum, batch: Batch{Entries: change(func(e []raftlog.Entry) { e[0].Data = make([]byte, rawLimit) })}},
	} {
		if h, _, err := Encode(t.Context(), testTimeline, c.before, c.chainStart, c.batch, c.meta, c.opts); err == nil {
			t.Errorf("%s: encoded as %+v", name, h)
		}
	}
}

// The largest header that a segment can come by fits the block.
func TestHeaderFits(t *testing.T) {
	h, _ := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t, newIdentity(t).Recipient())
	h.Timeline.N = math.MaxInt
	h.Level = 9
	h.FirstIndex, h.LastIndex, h.FirstTerm, h.LastTerm = math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64
	h.Revision, h.Entries, h.Marks = math.MaxInt64, math.MaxInt, math.MaxInt
	h.FirstMark, h.LastMark, h.Cut = start.Add(123456789), start.Add(123456789), start.Add(123456789)
	h.Member, h.Tool = math.MaxUint64, "requorum v123.456.789-rc.123-1234-gdeadbeefdeadbeef-dirty"
	h.Object.RawSize, h.Object.StoredSize, h.Object.FrameSize, h.Object.Frames, h.Object.HeaderSize = math.MaxInt64, math.MaxInt64, math.MaxInt, math.MaxInt, math.MaxInt
	doc, err := repository.Seal(h)
	if err != nil || len(doc) > HeaderSize-blockFrameHead {
		t.Fatalf("it takes %d bytes, %v", len(doc), err)
	}
}

// A segment of a newer format is refused by name, before anything else of it is
// believed.
func TestNewerFormat(t *testing.T) {
	h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t)
	h.Format = 2
	h.Object.Codecs = []string{"something new"}
	block, err := h.block()
	require.NoError(t, err)
	s := memory(t, h.Name(), append(block, data[HeaderSize:]...))
	if _, err := ReadHeader(t.Context(), newRepo(t, s), h.Name()); !errors.Is(err, snapshot.ErrNewerFormat) || !strings.Contains(err.Error(), h.Name()) {
		t.Errorf("ReadHeader: %v", err)
	}
	_, _, err = Read(t.Context(), newRepo(t, s), h.Name())
	require.ErrorIs(t, err, snapshot.ErrNewerFormat, "Read")
}

// One of a format or a kind that no version writes is damaged.
func TestFormatOfNoVersion_IsDamage(t *testing.T) {
	for _, change := range []func(*Header){func(h *Header) { h.Format = 0 }, func(h *Header) { h.Format = -1 }, func(h *Header) { h.Kind = "other" }} {
		h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t)
		change(&h)
		block, err := h.block()
		require.NoError(t, err)
		_, err = ReadHeader(t.Context(), newRepo(t, memory(t, h.Name(), append(block, data[HeaderSize:]...))), h.Name())
		require.True(t, snapshot.IsDamaged(err) && !errors.Is(err, snapshot.ErrNewerFormat), "%v", err)
	}
}

func TestReadWhatIsNotThere(t *testing.T) {
	name := repository.SegmentName{Timeline: testTimeline, First: 1}.String()
	_, err := ReadHeader(t.Context(), newRepo(t, sinktest.NewMemory()), name)
	require.ErrorIs(t, err, sinks.ErrNotFound, "ReadHeader")
	_, _, err = Read(t.Context(), newRepo(t, sinktest.NewMemory()), name)
	require.ErrorIs(t, err, sinks.ErrNotFound, "Read")
}

// Without a fitting identity the error says so, and is no damage.
func TestIdentities(t *testing.T) {
	s := sinktest.NewMemory()
	h := piece{"a", 1, 11, 40, 0, nil, 0}.store(t, s, newIdentity(t).Recipient())
	for _, identities := range [][]age.Identity{nil, {newIdentity(t)}} {
		_, _, err := Read(t.Context(), newRepo(t, s), h.Name(), identities...)
		var missing *codec.IdentityError
		if !errors.As(err, &missing) || snapshot.IsDamaged(err) || !strings.Contains(err.Error(), h.Name()) {
			t.Errorf("%d identities: %v", len(identities), err)
		}
	}
}
