package engine

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// Rows that etcd did not write so are not read: each field once, in its order and of its type.
func TestParseKeyValue(t *testing.T) {
	want := keyValue{key: []byte("key"), value: []byte("value"), created: 2, modified: 3, version: 4, leased: 5}
	whole := want.append(nil, false)
	got, err := parseKeyValue(whole)
	require.NoError(t, err)
	require.Equal(t, want, got)
	bytes := func(n protowire.Number) []byte { return appendBytes(nil, n, []byte("x")) }
	number := func(n protowire.Number) []byte { return appendNumber(nil, n, 1) }
	wrong := map[string][]byte{
		"an unknown field of bytes": append(want.append(nil, false), bytes(7)...), "an unknown number": append(want.append(nil, false), number(7)...),
		"a field twice": append(bytes(kvKey), bytes(kvKey)...), "a wrong order": append(bytes(kvValue), bytes(kvKey)...),
		"a key that is a number": number(kvKey), "a value that is a number": append(bytes(kvKey), number(kvValue)...), "cut off": whole[:len(whole)-1],
	}
	for name, n := range map[string]protowire.Number{"created": kvCreated, "modified": kvModified, "version": kvVersion, "lease": kvLease} {
		wrong[name+" that is bytes"] = append(bytes(kvKey), bytes(n)...)
	}
	for name, row := range wrong {
		if kv, err := parseKeyValue(row); !errors.Is(err, errNoKeyValue) {
			t.Errorf("%s: it was read as %+v, %v", name, kv, err)
		}
	}
}

// Two keys of one hash are two.
func TestKeysOfOneHash(t *testing.T) {
	r, err := openRows(empty(t), filepath.Join(t.TempDir(), "rows"), spoolBuffer)
	require.NoError(t, err)
	x := newKeyIndex(r)
	_, hash, known := x.lookup([]byte("b"))
	require.False(t, known)
	n := x.add(hash)
	at, size, err := r.add(n, 0, false, &keyValue{key: []byte("a"), created: 2, modified: 2, version: 1})
	require.NoError(t, err)
	x.set(n, at, size)
	_, _, known = x.lookup([]byte("b"))
	require.False(t, known, "it was taken for the other key")
	require.NoError(t, r.close())
}
