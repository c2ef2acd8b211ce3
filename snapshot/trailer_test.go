package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func streamOf(size int, r *rand.Rand) []byte {
	database := make([]byte, size)
	for i := range database {
		database[i] = byte(r.Uint32())
	}
	sum := sha256.Sum256(database)
	return append(database, sum[:]...)
}

// However the stream is cut into pieces, both sums are those of a second,
// deliberately simple computation; also where the database was hashed before.
func TestStreamHash(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		stream := streamOf(4096*(1+r.IntN(4)), r)
		h := newStreamHash()
		if h.hashed = i%2 == 0; h.hashed {
			h.Hash.Write(stream[:len(stream)-sha256.Size])
		}
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), r.IntN(100)+1)
			if r.IntN(2) == 0 {
				n = min(len(rest), r.IntN(5000)+1)
			}
			h.Write(rest[:n])
			rest = rest[n:]
		}
		whole := sha256.Sum256(stream)
		if got := h.Sum(nil); !bytes.Equal(got, whole[:]) {
			t.Fatalf("sum of the stream: got %x, want %x", got, whole)
		}
		got, err := h.Check()
		require.NoError(t, err)
		if want := hex.EncodeToString(stream[len(stream)-sha256.Size:]); got != want {
			t.Fatalf("sum of the database: got %s, want %s", got, want)
		}
	}
}

// A stream that is cut short anywhere, altered anywhere, or longer is refused.
func TestPromise1DamagedStreamIsRefused(t *testing.T) {
	stream := streamOf(1536, rand.New(rand.NewPCG(3, 4)))
	check := func(s []byte) error {
		h := newStreamHash()
		h.Write(s)
		h.Sum(nil)
		_, err := h.Check()
		return err
	}
	require.NoError(t, check(stream))
	for i := range stream {
		if check(stream[:i]) == nil {
			t.Errorf("cut to %d bytes and accepted", i)
		}
		altered := bytes.Clone(stream)
		altered[i] ^= 4
		if check(altered) == nil {
			t.Errorf("altered at byte %d and accepted", i)
		}
	}
	if err := check(stream[:1024]); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want an early end", err)
	}
	if check(append(bytes.Clone(stream), 0)) == nil {
		t.Error("one byte more and accepted")
	}
}

func TestDatabaseSize(t *testing.T) {
	for _, c := range []struct{ size, want int64 }{
		{16384, 16384}, {16384 + 32, 16384}, {2048, 2048},
		{0, 0}, {32, 0}, {512, 0}, {16384 + 31, 0}, {16384 + 33, 0}, {16383, 0},
	} {
		got, err := databaseSize(c.size)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("databaseSize(%d) = %d, %v; want %d", c.size, got, err, c.want)
		}
	}
}

func TestBodyReader(t *testing.T) {
	errEnd := errors.New("the end does not match")
	for _, c := range []struct {
		name string
		data string
		left int64
		end  error
		want error
	}{
		{"whole", "database", 8, nil, nil},
		{"more follows", "databaseTRAILER", 8, nil, nil},
		{"short", "data", 8, nil, io.ErrUnexpectedEOF},
		{"bad end", "database", 8, errEnd, errEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := false
			r := &bodyReader{src: bytes.NewBufferString(c.data), left: c.left, end: func() error { ended = true; return c.end }}
			got, err := io.ReadAll(r)
			require.ErrorIs(t, err, c.want)
			if c.want == nil && (string(got) != "database" || !ended) {
				t.Fatalf("got %q, ended %v", got, ended)
			}
			if _, again := r.Read(make([]byte, 1)); c.want != nil && !errors.Is(again, c.want) {
				t.Fatalf("the error was forgotten: %v", again)
			}
		})
	}
}
