package sinks_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestRememberConforms(t *testing.T) {
	sinktest.Conformance(t, func(*testing.T) sinks.Sink {
		return sinks.Remember(sinktest.NewMemory(), 1<<20, func(string) bool { return true })
	}, sinktest.Options{})
}

func TestKeepInConforms(t *testing.T) {
	sinktest.Conformance(t, func(t *testing.T) sinks.Sink { return sinks.KeepIn(sinktest.NewMemory(), keptFile(t)) }, sinktest.Options{})
}

func keptFile(t *testing.T) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), "kept"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// What was read whole is read of the file: what is too large for that, or finds no place
// there, of the sink again.
func TestKeepIn(t *testing.T) {
	counted := sinktest.NewFaulty(sinktest.NewMemory())
	put := func(name string, size int) []byte {
		data := bytes.Repeat([]byte(name[:1]), size)
		_, err := sinks.Put(t.Context(), counted, name, data, sinks.CreateOptions{})
		require.NoError(t, err)
		return data
	}
	// requests are how many a second reading takes, where the first took one.
	requests := func(s sinks.Sink, name string, want []byte) int {
		before := counted.Calls(sinktest.Open)
		for range 2 {
			body, err := s.Open(t.Context(), name, 0, -1)
			require.NoError(t, err)
			got, err := io.ReadAll(body)
			require.NoError(t, errors.Join(err, body.Close()))
			require.True(t, bytes.Equal(got, want), name)
		}
		return counted.Calls(sinktest.Open) - before - 1
	}
	f := keptFile(t)
	s := sinks.KeepIn(counted, f)
	a, b, large := put("a", 1<<20), put("b", 10), put("large", 4<<20+1)
	require.Equal(t, 0, requests(s, "a", a))
	require.Equal(t, 0, requests(s, "b", b))
	require.Equal(t, 1, requests(s, "large", large))
	require.NoError(t, f.Close())
	require.Equal(t, 1, requests(s, "c", put("c", 10)))
}

// What was read whole is not asked for again; all else is.
func TestRemember(t *testing.T) {
	counted := sinktest.NewFaulty(sinktest.NewMemory())
	s := sinks.Remember(counted, 100, func(name string) bool { return strings.HasSuffix(name, ".json") })
	put := func(name string, size int) []byte {
		t.Helper()
		data := bytes.Repeat([]byte(name[:1]), size)
		_, err := sinks.Put(t.Context(), counted, name, data, sinks.CreateOptions{})
		require.NoError(t, err)
		return data
	}
	// get reads an object, and says how many requests that took.
	get := func(name string, want []byte) int {
		t.Helper()
		before := counted.Calls(sinktest.Open)
		got, err := sinks.Get(t.Context(), s, name, 1<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
		return counted.Calls(sinktest.Open) - before
	}
	a, other := put("a.json", 60), put("other", 10)
	require.Equal(t, 1, get("a.json", a), "the first time")
	require.Equal(t, 0, get("a.json", a), "the second time")
	get("other", other)
	require.Equal(t, 1, get("other", other), "one that is not to be remembered")
	part, err := s.Open(t.Context(), "a.json", 10, 5)
	require.NoError(t, err)
	part.Close()
	require.Equal(t, 0, get("a.json", a), "after a part was read")

	// The memory is bounded, and the oldest goes.
	b := put("b.json", 60)
	get("b.json", b)
	require.Equal(t, 0, get("b.json", b), "the newer one")
	require.Equal(t, 1, get("a.json", a), "the older one")
	huge := put("huge.json", 200)
	get("huge.json", huge)
	require.Equal(t, 1, get("huge.json", huge), "one beyond the bound")

	// What is deleted through here is gone here.
	require.NoError(t, s.Delete(t.Context(), "a.json"))
	_, err = sinks.Get(t.Context(), s, "a.json", 100)
	require.ErrorIs(t, err, sinks.ErrNotFound, "after Delete")
}

// A read that broke off is no object.
func TestRememberBrokenRead(t *testing.T) {
	memory := sinktest.NewMemory()
	data := bytes.Repeat([]byte("x"), 1000)
	_, err := sinks.Put(t.Context(), memory, "a.json", data, sinks.CreateOptions{})
	require.NoError(t, err)
	faulty := sinktest.NewFaulty(memory, sinktest.CutRead(1, 500, errors.New("broken")))
	s := sinks.Remember(faulty, 1<<20, func(string) bool { return true })
	_, err = sinks.Get(t.Context(), s, "a.json", 2000)
	require.Error(t, err, "no error from a broken read")
	faulty.AllFired(t)
	if got, err := sinks.Get(t.Context(), s, "a.json", 2000); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after a broken read: %d bytes, %v", len(got), err)
	}
}
