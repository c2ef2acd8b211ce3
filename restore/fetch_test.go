package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

// bytesImage is an image in memory.
type bytesImage struct {
	data []byte
	open func() io.Reader
}

func (bytesImage) Name() string                                  { return "bytes" }
func (b bytesImage) Size() int64                                 { return int64(len(b.data)) }
func (bytesImage) Facts(context.Context) (snapshot.Facts, error) { return snapshot.Facts{}, nil }
func (b bytesImage) Open(context.Context) (io.ReadCloser, error) { return io.NopCloser(b.open()), nil }

func TestFetch(t *testing.T) {
	data := make([]byte, 3*chunkSize+12345)
	rng := rand.NewChaCha8([32]byte{1})
	_, err := rng.Read(data)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	errDisk := errors.New("disk broke")
	for _, c := range []struct {
		name   string
		open   func() io.Reader
		sum    string
		writer io.Writer
		want   string
	}{
		{"whole", func() io.Reader { return bytes.NewReader(data) }, hex.EncodeToString(sum[:]), nil, ""},
		{"bytewise end", func() io.Reader { return iotest.DataErrReader(bytes.NewReader(data)) }, "", nil, ""},
		{"halves", func() io.Reader { return iotest.HalfReader(bytes.NewReader(data)) }, hex.EncodeToString(sum[:]), nil, ""},
		{"short", func() io.Reader { return bytes.NewReader(data[:chunkSize]) }, "", nil, "ends after 1048576 of"},
		{"long", func() io.Reader { return io.MultiReader(bytes.NewReader(data), strings.NewReader("x")) }, "", nil, "more than the planned"},
		{"another sum", func() io.Reader { return bytes.NewReader(data) }, strings.Repeat("0", 64), nil, "SHA-256"},
		{"fails like an end", func() io.Reader {
			return io.MultiReader(bytes.NewReader(data[:chunkSize]), iotest.ErrReader(io.ErrUnexpectedEOF))
		}, "", nil, "unexpected EOF"},
		{"writer fails", func() io.Reader { return bytes.NewReader(data) }, "", failingWriter{errDisk}, "disk broke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := &bytes.Buffer{}, &bytes.Buffer{}
			to := []io.Writer{a, b}
			if c.writer != nil {
				to = append(to, c.writer)
			}
			var last int64
			err := fetch(t.Context(), bytesImage{data, c.open}, Source{Size: int64(len(data)), DatabaseSHA256: c.sum}, to, func(n int64) { last = n })
			if c.want == "" {
				if err != nil || !bytes.Equal(a.Bytes(), data) || !bytes.Equal(b.Bytes(), data) || last != int64(len(data)) {
					t.Errorf("%v; %d and %d bytes of %d, progress %d", err, a.Len(), b.Len(), len(data), last)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, fetch(ctx, bytesImage{data, func() io.Reader { return bytes.NewReader(data) }}, Source{Size: int64(len(data))}, nil, func(int64) {}), context.Canceled, "canceled")
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
