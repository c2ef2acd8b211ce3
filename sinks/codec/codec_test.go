package codec

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

// objects returns n bytes of made-up objects that share their structure.
func objects(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%x","namespace":"team-%d","uid":"%016x%016x"},"spec":{"containers":[{"name":"web","image":"registry.example/web@sha256:%016x%016x"}]},"status":{"podIP":"10.%d.%d.%d","phase":"Running"}}`,
			rnd.Uint32(), rnd.IntN(40), rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), rnd.IntN(256), rnd.IntN(256), rnd.IntN(256))
	}
	return b.Bytes()[:n]
}

// store stores raw in memory.
func store(t testing.TB, raw []byte, opts Options) ([]byte, Encoding) {
	t.Helper()
	var stored bytes.Buffer
	w, err := NewWriter(t.Context(), &stored, opts)
	require.NoError(t, err)
	if n, err := w.Write(raw); err != nil || n != len(raw) {
		t.Fatalf("Write: %d, %v", n, err)
	}
	require.NoError(t, w.Close())
	e := w.Description()
	require.NoError(t, e.Validate(), "description of what was just written")
	return stored.Bytes(), e
}

// readAll reads a stored object in order.
func readAll(t testing.TB, stored io.Reader, e Encoding, identities ...age.Identity) ([]byte, error) {
	t.Helper()
	r, err := NewReader(t.Context(), stored, e, identities...)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	require.NoError(t, r.Close())
	return raw, err
}

// readAllAt reads a stored object through its seek table.
func readAllAt(stored []byte, e Encoding, identities ...age.Identity) ([]byte, error) {
	r, err := OpenAt(bytes.NewReader(stored), int64(len(stored)), e, identities...)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
}

func newIdentity(t testing.TB) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return i
}
