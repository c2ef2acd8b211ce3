package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

// Whatever the size, the level and the encryption, both readers give back what
// was written.
func TestRoundTrip(t *testing.T) {
	x25519 := newIdentity(t)
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	encryptions := []struct {
		name       string
		recipients []age.Recipient
		identity   []age.Identity
	}{
		{"plain", nil, nil},
		{"x25519", []age.Recipient{newIdentity(t).Recipient(), x25519.Recipient()}, []age.Identity{newIdentity(t), x25519}},
		{"hybrid", []age.Recipient{hybrid.Recipient()}, []age.Identity{hybrid}},
	}
	const frame = 4 << 10
	sizes := []int{0, 1, frame - 1, frame, frame + 1, 2 * frame, 7*frame + 13, agePlainChunk, 3*agePlainChunk + 5}
	for range 5 {
		sizes = append(sizes, rand.IntN(40*frame))
	}
	for _, c := range encryptions {
		for _, size := range sizes {
			for _, level := range []Level{"", LevelBest} {
				t.Run(fmt.Sprintf("%s/%d/%s", c.name, size, level), func(t *testing.T) {
					t.Parallel()
					raw := objects(size)
					stored, e := store(t, raw, Options{Level: level, FrameSize: frame, Recipients: c.recipients})
					if e.RawSize != int64(size) || e.StoredSize != int64(len(stored)) || e.Encrypted() != (c.recipients != nil) {
						t.Fatalf("description is wrong: %+v", e)
					}
					got, err := readAll(t, bytes.NewReader(stored), e, c.identity...)
					if err != nil || !bytes.Equal(got, raw) {
						t.Fatalf("read in order: %d bytes of %d, %v", len(got), size, err)
					}
					got, err = readAllAt(stored, e, c.identity...)
					if err != nil || !bytes.Equal(got, raw) {
						t.Fatalf("read at random: %d bytes of %d, %v", len(got), size, err)
					}
				})
			}
		}
	}
}

// However the bytes come in and go out, they are the same.
func TestPiecesDoNotMatter(t *testing.T) {
	raw := objects(100_000)
	whole, e := store(t, raw, Options{FrameSize: 1 << 12})
	var stored bytes.Buffer
	w, err := NewWriter(t.Context(), &stored, Options{FrameSize: 1 << 12, Workers: 1})
	require.NoError(t, err)
	for p := raw; len(p) > 0; {
		n := min(len(p), 1+rand.IntN(9000))
		_, err = w.Write(p[:n])
		require.NoError(t, err)
		p = p[n:]
	}
	require.NoError(t, w.Close())
	if !bytes.Equal(stored.Bytes(), whole) {
		t.Fatal("the stored bytes depend on how they were written")
	}

	r, err := NewReader(t.Context(), &stored, e)
	require.NoError(t, err)
	defer r.Close()
	var got bytes.Buffer
	_, err = io.CopyN(&got, struct{ io.Reader }{r}, 777)
	require.NoError(t, err)
	_, err = r.(io.WriterTo).WriteTo(&got)
	require.NoError(t, err)
	if !bytes.Equal(got.Bytes(), raw) {
		t.Fatal("Read and then WriteTo gave other bytes")
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("after the end: %v", err)
	}
}

// What a Writer wrote to recipients alone can be read with its own key, and
// nothing else can.
func TestFileKeyIdentity(t *testing.T) {
	recipients := []age.Recipient{newIdentity(t).Recipient()}
	write := func() ([]byte, Encoding, age.Identity) {
		var stored bytes.Buffer
		w, err := NewWriter(t.Context(), &stored, Options{Recipients: recipients})
		require.NoError(t, err)
		_, err = w.Write([]byte("secret"))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return stored.Bytes(), w.Description(), w.FileKeyIdentity()
	}
	first, e, key := write()
	if got, err := readAll(t, bytes.NewReader(first), e, key); err != nil || string(got) != "secret" {
		t.Fatalf("%q, %v", got, err)
	}
	if got, err := readAllAt(first, e, key); err != nil || string(got) != "secret" {
		t.Fatalf("%q, %v", got, err)
	}
	second, e, _ := write()
	if got, err := readAll(t, bytes.NewReader(second), e, key); err == nil {
		t.Fatalf("another object's key opened it: %q", got)
	}
	plain, err := NewWriter(t.Context(), io.Discard, Options{})
	require.NoError(t, err)
	defer plain.Abort()
	if plain.FileKeyIdentity() != nil {
		t.Fatal("a key without encryption")
	}
}

// Many readers at once, over more frames than are cached.
func TestReaderAtConcurrently(t *testing.T) {
	identity := newIdentity(t)
	raw := objects(40 * 1500)
	for name, recipients := range map[string][]age.Recipient{"plain": nil, "age": {identity.Recipient()}} {
		t.Run(name, func(t *testing.T) {
			stored, e := store(t, raw, Options{FrameSize: 1500, Recipients: recipients})
			r, err := OpenAt(bytes.NewReader(stored), int64(len(stored)), e, identity)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 200 {
						off := rand.IntN(len(raw) + 100)
						p := make([]byte, rand.IntN(4000))
						n, err := r.ReadAt(p, int64(off))
						want := raw[min(off, len(raw)):min(off+len(p), len(raw))]
						if !bytes.Equal(p[:n], want) || (err != nil) != (n < len(p)) || err != nil && !errors.Is(err, io.EOF) {
							t.Errorf("ReadAt(%d bytes, %d): %d bytes, %v", len(p), off, n, err)
							return
						}
					}
				})
			}
			wg.Wait()
			if n := len(r.frames); n > cachedFrames || n != r.recent.Len() {
				t.Errorf("%d frames in the cache", n)
			}
		})
	}
}

// One look at an encrypted object's page is one request of the place where it
// lies, not one for each chunk.
func TestOneRequestForAFrame(t *testing.T) {
	identity := newIdentity(t)
	raw := make([]byte, 3<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(raw); err != nil { // not compressible: 1 MiB is 16 chunks
		t.Fatal(err)
	}
	stored, e := store(t, raw, Options{Recipients: []age.Recipient{identity.Recipient()}})
	src := &countingReaderAt{r: bytes.NewReader(stored)}
	r, err := OpenAt(src, int64(len(stored)), e, identity)
	require.NoError(t, err)
	before := src.calls
	p := make([]byte, 100)
	if _, err := r.ReadAt(p, 1<<20+500); err != nil || !bytes.Equal(p, raw[1<<20+500:1<<20+600]) {
		t.Fatal(err)
	}
	if n := src.calls - before; n != 1 {
		t.Errorf("%d requests for one frame", n)
	}
}

type countingReaderAt struct {
	r     io.ReaderAt
	calls int
}

func (c *countingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	c.calls++
	return c.r.ReadAt(p, off)
}
