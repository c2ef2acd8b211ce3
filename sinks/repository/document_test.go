package repository

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

type sample struct {
	Name string   `json:"name"`
	List []string `json:"list"`
	HTML string   `json:"html"`
}

func TestDocumentRoundTrip(t *testing.T) {
	want := sample{"m1", []string{"a", "b"}, "<&>\u2028"}
	data, err := Seal(want)
	require.NoError(t, err)
	var got sample
	require.NoError(t, Unseal(data, &got))
	if got.Name != want.Name || got.HTML != want.HTML || len(got.List) != 2 {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// Every bit that is flipped and every byte that is cut off or added is found.
func TestDocumentDamage(t *testing.T) {
	data, err := Seal(sample{"m1", []string{"a"}, "x"})
	require.NoError(t, err)
	check := func(what string, at int, damaged []byte) {
		t.Helper()
		var got sample
		if err := Unseal(damaged, &got); !errors.Is(err, ErrAltered) {
			t.Errorf("%s at byte %d: got %v, want ErrAltered", what, at, err)
		}
	}
	for i := range data {
		for bit := range 8 {
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << bit
			check("bit flipped", i, damaged)
		}
		check("cut", i, data[:i])
		check("byte added", i, append(append(bytes.Clone(data[:i]), ' '), data[i:]...))
	}
	check("appended", len(data), append(bytes.Clone(data), '\n'))
}

func FuzzUnseal(f *testing.F) {
	data, err := Seal(sample{"m1", []string{"a"}, "x"})
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"sha256":"","body":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v sample
		if Unseal(data, &v) != nil {
			return
		}
		// What is accepted is accepted again once written anew.
		again, err := Seal(v)
		require.NoError(t, err)
		require.NoError(t, Unseal(again, &v))
	})
}
