package codec

import (
	"bytes"
	"crypto/sha256"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// The sum of a prefix is that of the bytes before it, wherever it ends: within a
// frame, between two, at either end. An object that is damaged gives none, and the
// sum of the whole is looked at as without a prefix.
func TestPrefix(t *testing.T) {
	const frame = 1 << 10
	raw := objects(5*frame + 100)
	stored, e := store(t, raw, Options{FrameSize: frame})
	read := func(stored []byte, e Encoding, p *Prefix) error {
		r, err := NewPrefixReader(t.Context(), bytes.NewReader(stored), e, p)
		if err != nil {
			return err
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, raw) {
			t.Error("other bytes")
		}
		return err
	}
	for _, size := range []int{0, 1, frame - 1, frame, frame + 1, 3 * frame, len(raw) - 32, len(raw)} {
		p := &Prefix{Size: int64(size)}
		require.NoError(t, read(stored, e, p))
		if want := sha256.Sum256(raw[:size]); p.SHA256 != want {
			t.Errorf("of %d bytes: %x, want %x", size, p.SHA256, want)
		}
	}
	damaged := e
	damaged.RawSHA256 = e.StoredSHA256
	require.Error(t, read(stored, damaged, &Prefix{Size: int64(len(raw) - 32)}), "a sum that is not the object's went unnoticed")
}
