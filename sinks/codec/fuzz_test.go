package codec

import (
	"bytes"
	"io"
	"testing"

	"filippo.io/age"
	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/stretchr/testify/require"
)

// describe makes a description under which every byte of stored gets as far
// as it can: sums and sizes fit where they can be made to.
func describe(stored []byte, frames, headerSize int) Encoding {
	const frameSize = 1 << 10
	e := Encoding{
		Codecs: []string{Zstd}, Level: LevelFastest, FrameSize: frameSize,
		Frames: frames, RawSize: int64(frames) * frameSize,
		StoredSize: int64(len(stored)), StoredSHA256: sha256Hex(stored), RawSHA256: sha256Hex(nil),
	}
	if headerSize > 0 && headerSize <= len(stored) {
		e.Codecs = append(e.Codecs, Age)
		e.HeaderSize, e.HeaderSHA256 = headerSize, sha256Hex(stored[:headerSize])
	}
	return e
}

// fuzzRead reads stored in every way. That it returns, and returns no more
// than was described, is all that is asked.
func fuzzRead(t *testing.T, stored []byte, e Encoding, identities ...age.Identity) {
	if r, err := NewReader(t.Context(), bytes.NewReader(stored), e, identities...); err == nil {
		n, _ := io.Copy(io.Discard, r) // any error will do
		if err := r.Close(); err != nil || n > e.RawSize {
			t.Fatalf("%d raw bytes of %d, %v", n, e.RawSize, err)
		}
	}
	r, err := OpenAt(bytes.NewReader(stored), int64(len(stored)), e, identities...)
	if err != nil {
		return
	}
	n, _ := io.Copy(io.Discard, io.NewSectionReader(r, 0, r.Size())) // any error will do
	if n > e.RawSize {
		t.Fatalf("%d raw bytes of %d", n, e.RawSize)
	}
}

// FuzzStored reads arbitrary frames and seek tables.
func FuzzStored(f *testing.F) {
	for _, n := range []int{0, 1, 1 << 10, 3 << 10} {
		stored, e := store(f, objects(n), Options{FrameSize: 1 << 10})
		f.Add(stored, e.Frames)
	}
	f.Fuzz(func(t *testing.T, stored []byte, frames int) {
		fuzzRead(t, stored, describe(stored, frames, 0))
	})
}

// FuzzSealed reads arbitrary age headers and payloads.
func FuzzSealed(f *testing.F) {
	identity, err := age.ParseX25519Identity("AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX")
	require.NoError(f, err)
	for _, n := range []int{0, 1, 3 << 10} {
		stored, e := store(f, objects(n), Options{FrameSize: 1 << 10, Recipients: []age.Recipient{identity.Recipient()}})
		f.Add(stored, e.Frames, e.HeaderSize)
	}
	f.Fuzz(func(t *testing.T, stored []byte, frames, headerSize int) {
		fuzzRead(t, stored, describe(stored, frames, headerSize), identity)
	})
}

// FuzzTable parses arbitrary seek tables. What passes lies within the stream, and is
// what another reader of the format finds.
func FuzzTable(f *testing.F) {
	stored, e := store(f, objects(3<<10), Options{FrameSize: 1 << 10})
	f.Add(stored[len(stored)-int(e.tableSize()):], e.Frames, int64(len(stored)))
	f.Fuzz(func(t *testing.T, b []byte, frames int, size int64) {
		e := describe(make([]byte, 64), frames, 0)
		if e.Validate() != nil {
			return
		}
		table, err := parseTable(b, e, size)
		if err != nil {
			return
		}
		other, err := seekable.NewSeekTable(b)
		if err != nil || other.NumFrames() != int64(len(table)) || !other.HasChecksums() {
			t.Fatalf("it is no seek table of %d frames with checksums: %v", len(table), err)
		}
		for i, f := range table {
			want, ok := other.EntryByID(int64(i))
			if !ok || f.offset+int64(f.size) > size || f != (frame{int64(want.CompressedOffset), int(want.CompressedSize), want.Checksum}) {
				t.Fatalf("entry %d of %d bytes: %+v, want %+v", i, size, f, want)
			}
		}
	})
}
