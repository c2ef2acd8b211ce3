package segment

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Promise 2 of this package: every byte of a segment flipped in turn is found by
// Read, every one of the header block by ReadHeader as well: plain, encrypted, merged, with marks.
func TestEveryFlippedByteIsFound(t *testing.T) {
	identity := newIdentity(t)
	marks := []raftlog.Mark{markOf(15, 1, start)}
	for name, c := range map[string]struct {
		p          piece
		recipients []age.Recipient
	}{
		"plain":       {piece{"a", 1, 11, 40, 0, marks, 0}, nil},
		"encrypted":   {piece{"a", 1, 11, 40, 0, marks, 0}, []age.Recipient{identity.Recipient()}},
		"chain start": {piece{"a", 11, 11, 40, 1, nil, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, data := c.p.encode(t, c.recipients...)
			n := h.Name()
			_, _, err := Read(t.Context(), newRepo(t, memory(t, n, data)), n, identity)
			require.NoError(t, err)
			for i := range data {
				bits := []byte{1 << (i % 8)}
				if i < HeaderSize {
					bits = []byte{1, 4, 0x20, 0x80} // 0x20 makes other letters and spaces of some
					if testing.Short() {
						bits = bits[i%4:][:1]
					}
				}
				for _, bit := range bits {
					data[i] ^= bit
					repo := newRepo(t, memory(t, n, data))
					_, b, err := Read(t.Context(), repo, n, identity)
					wantDamaged(t, "Read", err)
					if b.Entries != nil {
						t.Errorf("byte %d: entries were returned", i)
					}
					_, err = ReadHeader(t.Context(), repo, n)
					if i < HeaderSize {
						wantDamaged(t, "ReadHeader", err)
					} else if err != nil {
						t.Errorf("byte %d is not in the header, but: %v", i, err)
					}
					data[i] ^= bit
				}
			}
		})
	}
}

// A segment that is cut anywhere, or longer, is found.
func TestTruncationAndExtension(t *testing.T) {
	identity := newIdentity(t)
	for name, recipients := range map[string][]age.Recipient{"plain": nil, "encrypted": {identity.Recipient()}} {
		t.Run(name, func(t *testing.T) {
			h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t, recipients...)
			n := h.Name()
			for size := range data {
				_, _, err := Read(t.Context(), newRepo(t, memory(t, n, data[:size])), n, identity)
				wantDamaged(t, "cut", err)
				if size < HeaderSize {
					_, err := ReadHeader(t.Context(), newRepo(t, memory(t, n, data[:size])), n)
					wantDamaged(t, "cut header", err)
				}
			}
			for _, more := range [][]byte{{0}, bytes.Repeat([]byte{0}, 100), data} {
				_, _, err := Read(t.Context(), newRepo(t, memory(t, n, append(bytes.Clone(data), more...))), n, identity)
				wantDamaged(t, "longer", err)
			}
		})
	}
}

// Whole parts that are good by themselves, in the wrong place.
func TestPromise6SwappedParts(t *testing.T) {
	a, dataA := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t)
	b, dataB := piece{"a", 1, 41, 70, 0, nil, 0}.encode(t)
	other, dataOther := piece{"b", 1, 11, 40, 0, nil, 0}.encode(t)
	merged, dataMerged := piece{"a", 1, 11, 40, 1, nil, 0}.encode(t)
	join := func(header, body []byte) []byte {
		return append(bytes.Clone(header[:HeaderSize]), body[HeaderSize:]...)
	}
	for name, c := range map[string]struct {
		at   string
		data []byte
	}{
		"the body of the next one":        {a.Name(), join(dataA, dataB)},
		"the header of the next one":      {a.Name(), join(dataB, dataA)},
		"another segment's place":         {a.Name(), dataB},
		"the body of another history":     {a.Name(), join(dataA, dataOther)},
		"the header of another history":   {a.Name(), join(dataOther, dataA)},
		"a merged segment at level 0":     {a.Name(), dataMerged},
		"a segment of level 0 as merged":  {merged.Name(), dataA},
		"two segments in one":             {a.Name(), append(bytes.Clone(dataA), dataB...)},
		"a segment of another timeline's": {"cdf818194e3a8c32-2" + a.Name()[len("cdf818194e3a8c32-1"):], dataA},
	} {
		_, _, err := Read(t.Context(), newRepo(t, memory(t, c.at, c.data)), c.at)
		wantDamaged(t, name, err)
	}
	// The control: each is good where it belongs.
	for n, data := range map[string][]byte{a.Name(): dataA, b.Name(): dataB, other.Name(): dataOther, merged.Name(): dataMerged} {
		_, _, err := Read(t.Context(), newRepo(t, memory(t, n, data)), n)
		require.NoError(t, err)
	}
}

// A writer that is wrong, not damage: sums fit, the content does not keep what
// the header says.
func TestContentIsHeldAgainstTheHeader(t *testing.T) {
	for name, change := range map[string]func(*Header, *Batch){
		"a chain value after":  func(h *Header, _ *Batch) { h.After[0]++ },
		"a chain value before": func(h *Header, _ *Batch) { h.Before[0]++ },
		"a last term":          func(h *Header, _ *Batch) { h.LastTerm++ },
		"a first term":         func(h *Header, _ *Batch) { h.FirstTerm = 0 },
		"an entry less":        func(_ *Header, b *Batch) { b.Entries = b.Entries[1:] },
		"an entry twice":       func(_ *Header, b *Batch) { b.Entries[3] = b.Entries[2] },
		"another entry":        func(_ *Header, b *Batch) { b.Entries[3].Data = []byte("x") },
		"a falling term":       func(_ *Header, b *Batch) { b.Entries[3].Term = 0 },
		"a mark outside":       func(_ *Header, b *Batch) { b.Marks[0].Index = 9 },
		"a mark of a later term before the first": func(_ *Header, b *Batch) { b.Marks[0].Index, b.Marks[0].Term = 10, 2 },
		"a mark of a term":                        func(_ *Header, b *Batch) { b.Marks[0].Term = 7 },
		"a mark less":                             func(_ *Header, b *Batch) { b.Marks = b.Marks[1:] },
		"marks in disorder":                       func(_ *Header, b *Batch) { b.Marks[0], b.Marks[1] = b.Marks[1], b.Marks[0] },
		"a mark's time":                           func(_ *Header, b *Batch) { b.Marks[0].Time = b.Marks[0].Time.Add(-1) },
	} {
		h, _ := piece{"a", 1, 11, 40, 0, []raftlog.Mark{markOf(15, 1, start), markOf(16, 1, start)}, 0}.encode(t)
		b := Batch{entriesOf("a", 11, 40), []raftlog.Mark{markOf(15, 1, start), markOf(16, 1, start)}}
		change(&h, &b)
		s := memory(t, h.Name(), forge(t, h, b))
		_, _, err := Read(t.Context(), newRepo(t, s), h.Name())
		wantDamaged(t, name, err)
	}
}

// forge makes an object of a header and a batch that need not fit.
func forge(t testing.TB, h Header, b Batch) []byte {
	t.Helper()
	raw, err := records(b)
	require.NoError(t, err)
	body, err := encodeBody(t.Context(), raw, testOptions, &h.Object)
	require.NoError(t, err)
	block, err := h.block()
	require.NoError(t, err)
	return append(block, body...)
}

// A connection that breaks is no damage: another attempt may succeed.
func TestBrokenReadsAreNotDamage(t *testing.T) {
	h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t)
	for _, at := range []int64{0, 5, HeaderSize, HeaderSize + 20} {
		for _, failure := range []error{io.ErrUnexpectedEOF, sinktest.ErrInjected} {
			s := sinktest.NewFaulty(memory(t, h.Name(), data), sinktest.CutRead(1, at, failure).Of(h.Name()))
			_, _, err := Read(t.Context(), newRepo(t, s), h.Name())
			if err == nil || snapshot.IsDamaged(err) || !errors.Is(err, failure) {
				t.Errorf("Read cut at %d: %v", at, err)
			}
			s.AllFired(t)
			if at >= HeaderSize {
				continue
			}
			s = sinktest.NewFaulty(memory(t, h.Name(), data), sinktest.CutRead(1, at, failure).Of(h.Name()))
			if _, err := ReadHeader(t.Context(), newRepo(t, s), h.Name()); err == nil || snapshot.IsDamaged(err) || !errors.Is(err, failure) {
				t.Errorf("ReadHeader cut at %d: %v", at, err)
			}
			s.AllFired(t)
		}
	}
}

// The largest segment that is read, of a few KiB in the repository, takes its raw bytes and
// an ordinary segment's.
func TestLargestSegment(t *testing.T) {
	e := raftlog.Entry{Index: 1, Term: 1, Data: make([]byte, rawLimit-64)}
	h, data, err := Encode(t.Context(), testTimeline, raftlog.Sum{}, true, Batch{Entries: []raftlog.Entry{e}}, Meta{Cut: start}, Options{})
	require.NoError(t, err)
	repo := newRepo(t, memory(t, h.Name(), data))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, b, err := Read(t.Context(), repo, h.Name())
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
	if took := after.TotalAlloc - before.TotalAlloc; took > rawLimit+4*MaxRaw {
		t.Errorf("it took %d MiB", took>>20)
	}
}

// Hostile claims do not drive memory: a header may say 64 MiB, but bytes that
// never come take no more than an ordinary segment.
func TestHostileClaimsTakeNoMemory(t *testing.T) {
	h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t)
	h.Object.FrameSize = codec.MaxFrameSize
	h.Object.RawSize = rawLimit
	h.Object.Frames = rawLimit / codec.MaxFrameSize
	h.Object.StoredSize = 1 << 40
	h.LastIndex, h.Entries = h.FirstIndex+maxEntries-1, maxEntries
	block, err := h.block()
	require.NoError(t, err)
	repo := newRepo(t, memory(t, h.Name(), append(block, data[HeaderSize:]...)))
	_, err = ReadHeader(t.Context(), repo, h.Name())
	require.NoError(t, err, "the claims should pass the header's own checks")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = Read(t.Context(), repo, h.Name())
	runtime.ReadMemStats(&after)
	wantDamaged(t, "hostile", err)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("it took %d MiB", took>>20)
	}
	for name, change := range map[string]func(*Header){
		"raw size": func(h *Header) { h.Object.RawSize, h.Object.Frames = rawLimit+1, rawLimit/codec.MaxFrameSize+1 },
		"frame size": func(h *Header) {
			h.Object.FrameSize, h.Object.Frames = 2*codec.MaxFrameSize, rawLimit/codec.MaxFrameSize/2
		},
		"entries":     func(h *Header) { h.Entries++; h.LastIndex++ },
		"marks":       func(h *Header) { h.Marks, h.FirstMark, h.LastMark = maxMarks+1, start, start },
		"no entries":  func(h *Header) { h.Entries, h.LastIndex = 0, h.FirstIndex-1 },
		"chain start": func(h *Header) { h.ChainStart = true },
	} {
		bad := h
		change(&bad)
		block, err := bad.block()
		require.NoError(t, err)
		_, err = ReadHeader(t.Context(), newRepo(t, memory(t, h.Name(), block)), h.Name())
		wantDamaged(t, name, err)
	}
}

// A segment is read with one request and closed.
func TestReadIsOneRequest(t *testing.T) {
	h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(t)
	s := sinktest.NewFaulty(memory(t, h.Name(), data))
	repo := newRepo(t, s)
	before := s.Calls(sinktest.Open) + s.Calls(sinktest.Stat)
	_, _, err := Read(t.Context(), repo, h.Name())
	require.NoError(t, err)
	if n := s.Calls(sinktest.Open) + s.Calls(sinktest.Stat) - before; n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A small object may unpack to very many small records, which take many times
// their bytes: no more are read than the header has, and that is bounded.
func TestRecordBomb(t *testing.T) {
	marks := bytes.Repeat([]byte{kindMark, 2, '{', '}'}, 1<<20)
	entry, err := records(Batch{Entries: entriesOf("a", 1, 1)})
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = parseRecords(append(entry, marks...), 1, 1)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 16<<20 {
		t.Errorf("%v; %d marks took %d MiB", err, 1<<20, took>>20)
	}
}
