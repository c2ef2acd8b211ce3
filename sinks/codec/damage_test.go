package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// smallObjects are stored objects small enough to try every damage on.
func smallObjects(t *testing.T) map[string]struct {
	raw, stored []byte
	e           Encoding
	identity    age.Identity
} {
	identity := newIdentity(t)
	all := map[string]struct {
		raw, stored []byte
		e           Encoding
		identity    age.Identity
	}{}
	for name, recipients := range map[string][]age.Recipient{"plain": nil, "age": {identity.Recipient()}} {
		raw := objects(3500)
		stored, e := store(t, raw, Options{FrameSize: 1 << 10, Recipients: recipients})
		all[name] = struct {
			raw, stored []byte
			e           Encoding
			identity    age.Identity
		}{raw, stored, e, identity}
	}
	return all
}

// A bit flipped in any byte of a stored object is found, and is distinguished from a
// wrong identity. Read at random, it either is found or does not matter.
func TestBitFlipInEveryByte(t *testing.T) {
	for name, o := range smallObjects(t) {
		t.Run(name, func(t *testing.T) {
			for i := range o.stored {
				damaged := bytes.Clone(o.stored)
				damaged[i] ^= 1 << (i % 8)
				_, err := readAll(t, bytes.NewReader(damaged), o.e, o.identity)
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) {
					t.Fatalf("byte %d of %d: %v", i, len(damaged), err)
				}
				if corrupt.Offset > int64(len(damaged)) {
					t.Errorf("byte %d of %d is said to be at %d", i, len(damaged), corrupt.Offset)
				}
				got, err := readAllAt(damaged, o.e, o.identity)
				if err == nil && !bytes.Equal(got, o.raw) || err != nil && !errors.As(err, &corrupt) {
					t.Fatalf("at random, byte %d of %d: wrong bytes or a wrong error: %v", i, len(damaged), err)
				}
			}
		})
	}
}

// An object that ends early, anywhere, or goes on after its end.
func TestTruncatedAnywhere(t *testing.T) {
	for name, o := range smallObjects(t) {
		t.Run(name, func(t *testing.T) {
			var corrupt *CorruptError
			for n := range o.stored {
				if _, err := readAll(t, bytes.NewReader(o.stored[:n]), o.e, o.identity); !errors.As(err, &corrupt) {
					t.Fatalf("%d bytes of %d: %v", n, len(o.stored), err)
				}
				if _, err := readAllAt(o.stored[:n], o.e, o.identity); !errors.As(err, &corrupt) {
					t.Fatalf("at random, %d bytes of %d: %v", n, len(o.stored), err)
				}
			}
			for _, tail := range []string{"\x00", string(o.stored), "\x50\x2a\x4d\x18\x00\x00\x00\x00"} {
				longer := append(bytes.Clone(o.stored), tail...)
				if _, err := readAll(t, bytes.NewReader(longer), o.e, o.identity); !errors.As(err, &corrupt) {
					t.Fatalf("%d bytes more: %v", len(tail), err)
				}
			}
			endless := io.MultiReader(bytes.NewReader(o.stored), endlessZeros{})
			if _, err := readAll(t, endless, o.e, o.identity); !errors.As(err, &corrupt) {
				t.Fatalf("an endless tail: %v", err)
			}
		})
	}
}

type endlessZeros struct{}

func (endlessZeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Frames that are each intact, but not those that were written.
func TestFramesDroppedDoubledSwapped(t *testing.T) {
	const frame = 1 << 10
	raw := objects(4 * frame)
	stored, e := store(t, raw, Options{FrameSize: frame})
	opened, err := OpenAt(bytes.NewReader(stored), int64(len(stored)), e)
	require.NoError(t, err)
	var frames [][]byte
	for _, f := range opened.table {
		frames = append(frames, stored[f.offset:][:f.size])
	}
	table := stored[len(stored)-int(e.tableSize()):]
	build := func(table []byte, order ...int) []byte {
		var b []byte
		for _, i := range order {
			b = append(b, frames[i]...)
		}
		return append(b, table...)
	}
	if !bytes.Equal(build(table, 0, 1, 2, 3), stored) {
		t.Fatal("the frames were not taken apart rightly")
	}
	// A table that fits the frames in their new order.
	fitting := func(order ...int) []byte {
		var b tableBuilder
		for _, i := range order {
			b.add(frame, frames[i])
		}
		return b.finish()
	}
	for _, order := range [][]int{{0, 1, 2}, {1, 2, 3}, {0, 0, 1, 2, 3}, {0, 1, 1, 3}, {1, 0, 2, 3}, {3, 2, 1, 0}, {}} {
		for name, table := range map[string][]byte{"old table": table, "fitting table": fitting(order...)} {
			_, err := readAll(t, bytes.NewReader(build(table, order...)), e)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Errorf("frames %v, %s: %v", order, name, err)
			}
		}
	}
	// A table of other frames, with everything else as it was.
	e2 := e
	other := build(fitting(1, 0, 2, 3), 0, 1, 2, 3)
	e2.StoredSHA256 = sha256Hex(other)
	_, err = readAll(t, bytes.NewReader(other), e2)
	require.Error(t, err, "a seek table that does not fit was not noticed")
}

// A frame has to end with the checksum that is in the seek table, too.
func TestFrameWithoutChecksum(t *testing.T) {
	raw := objects(2 << 10)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
	require.NoError(t, err)
	frame := encoder.EncodeAll(raw, nil)
	require.NoError(t, encoder.Close())
	_, e := store(t, raw, Options{FrameSize: len(raw)})
	var table tableBuilder
	table.add(len(raw), frame)
	stored := slices.Concat(frame, table.finish())
	e.StoredSize, e.StoredSHA256 = int64(len(stored)), sha256Hex(stored)
	_, err = readAll(t, bytes.NewReader(stored), e)
	require.ErrorContains(t, err, "a frame without a checksum")
	opened, err := OpenAt(bytes.NewReader(stored), e.StoredSize, e)
	require.NoError(t, err)
	_, err = opened.ReadAt(make([]byte, 1), 0)
	require.ErrorContains(t, err, "a frame without a checksum")
}

// A description that was edited, field by field.
func TestDescriptionEdited(t *testing.T) {
	sum := sha256Hex(nil)
	for name, o := range smallObjects(t) {
		edits := map[string]func(*Encoding){
			"codecs":        func(e *Encoding) { e.Codecs = []string{"zstd-seekable", "rot13"} },
			"no codecs":     func(e *Encoding) { e.Codecs = nil },
			"age twice":     func(e *Encoding) { e.Codecs = append(slices.Clone(e.Codecs), Age, Age) },
			"frame size":    func(e *Encoding) { e.FrameSize++ },
			"huge frames":   func(e *Encoding) { e.FrameSize = 1 << 40; e.Frames = 1 },
			"frames":        func(e *Encoding) { e.Frames++ },
			"raw size":      func(e *Encoding) { e.RawSize-- },
			"negative size": func(e *Encoding) { e.RawSize = -1; e.Frames = 0 },
			"raw sum":       func(e *Encoding) { e.RawSHA256 = sum },
			"no raw sum":    func(e *Encoding) { e.RawSHA256 = "" },
			"stored size":   func(e *Encoding) { e.StoredSize++ },
			"no stored sum": func(e *Encoding) { e.StoredSHA256 = "" },
			"stored sum":    func(e *Encoding) { e.StoredSHA256 = sum },
			"header":        func(e *Encoding) { e.HeaderSize++ },
			"huge header":   func(e *Encoding) { e.HeaderSize = 1 << 40 },
			"header sum":    func(e *Encoding) { e.HeaderSHA256 = sum; e.HeaderSize = max(1, e.HeaderSize) },
		}
		for edit, apply := range edits {
			e := o.e
			apply(&e)
			var corrupt *CorruptError
			if _, err := readAll(t, bytes.NewReader(o.stored), e, o.identity); !errors.As(err, &corrupt) {
				t.Errorf("%s, %s edited: %v", name, edit, err)
			}
		}
	}
}

// A source that fails is not called corrupt: trying again may help.
func TestSourceFailsIsNotCorrupt(t *testing.T) {
	cut := errors.New("connection cut")
	for name, o := range smallObjects(t) {
		for _, n := range []int{0, 1, o.e.HeaderSize, len(o.stored) / 2, len(o.stored) - 1, len(o.stored)} {
			for _, failure := range []error{cut, io.ErrUnexpectedEOF} {
				t.Run(fmt.Sprintf("%s/%d/%v", name, n, failure), func(t *testing.T) {
					src := io.MultiReader(bytes.NewReader(o.stored[:n]), iotest.ErrReader(failure))
					_, err := readAll(t, src, o.e, o.identity)
					var corrupt *CorruptError
					if !errors.Is(err, failure) || errors.As(err, &corrupt) {
						t.Errorf("%v", err)
					}
				})
			}
		}
	}
}

// A frame may say anything of itself: what it unpacks to is bounded before it
// is unpacked.
func TestFrameBomb(t *testing.T) {
	// zstd's own way of saying "32 MiB of zeros", which no writer here would say.
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	bomb := encoder.EncodeAll(make([]byte, 32<<20), nil)
	_, e := store(t, make([]byte, 1<<10), Options{FrameSize: 1 << 10})
	bomb = append(bomb, make([]byte, e.tableSize())...)
	e.StoredSize = int64(len(bomb))
	e.StoredSHA256 = sha256Hex(bomb)
	before := allocated()
	var corrupt *CorruptError
	if _, err := readAll(t, bytes.NewReader(bomb), e); !errors.As(err, &corrupt) {
		t.Errorf("%v", err)
	}
	if n := allocated() - before; n > 8<<20 {
		t.Errorf("%d bytes were allocated for a frame of 1 KiB", n)
	}
}

// What reading takes is bounded by the format, not by the number of processors.
func TestReadingMemoryWithManyProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	const frames = 40
	stored, e := store(t, make([]byte, frames*MaxFrameSize), Options{FrameSize: MaxFrameSize, Workers: 1})
	const limit = 64 << 20
	measure := func(what string, read func() error) {
		t.Helper()
		runtime.GC()
		before := allocated()
		require.NoError(t, read())
		if n := allocated() - before; n > limit {
			t.Errorf("%s: %d frames of %d bytes took %d bytes, more than %d", what, frames, MaxFrameSize, n, limit)
		}
	}
	measure("in order", func() error {
		r, err := NewReader(t.Context(), bytes.NewReader(stored), e)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	})
	// And no object may ask for larger frames, nor for more of them than it has room for.
	for what, edit := range map[string]func(e *Encoding){
		"frames of 64 MiB": func(e *Encoding) { e.FrameSize = 64 << 20; e.Frames = 3 },
		"more frames than it holds": func(e *Encoding) {
			e.Frames = 1 << 17
			e.RawSize = int64(e.Frames) * int64(e.FrameSize)
			e.StoredSize = 13 << 17
		},
	} {
		changed := e
		edit(&changed)
		if err := changed.Validate(); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// Many readers at once hold no more frames than few.
func TestReadAtBoundsReadersUnderWay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	stored, e := store(t, make([]byte, 40*MaxFrameSize), Options{FrameSize: MaxFrameSize, Workers: 1})
	src := &waitingReaderAt{ReaderAt: bytes.NewReader(stored)}
	r, err := OpenAt(src, int64(len(stored)), e)
	require.NoError(t, err)
	src.most.Store(0)
	src.hold = make(chan struct{})
	var wg sync.WaitGroup
	for i := range e.Frames {
		wg.Go(func() {
			if _, err := r.ReadAt(make([]byte, 1), int64(i)*MaxFrameSize); err != nil {
				t.Error(err)
			}
		})
	}
	for range e.Frames {
		src.hold <- struct{}{}
	}
	wg.Wait()
	if n := src.most.Load(); n < 1 || n > int64(maxReading/MaxFrameSize) {
		t.Errorf("%d frames were read at once, more than %d", n, maxReading/MaxFrameSize)
	}
}

// waitingReaderAt says how many reads were under way at once, each of which waits
// for hold.
type waitingReaderAt struct {
	io.ReaderAt
	hold      chan struct{}
	now, most atomic.Int64
}

func (c *waitingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	if c.hold != nil {
		<-c.hold
	}
	return c.ReaderAt.ReadAt(p, off)
}
