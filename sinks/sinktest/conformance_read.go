package sinktest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/requorum/requorum/sinks"
)

func emptyPlace(t *testing.T, s sinks.Sink, _ Options) {
	if names := list(t, s, "", ""); len(names) != 0 {
		t.Errorf("list: %q", names)
	}
	if names := list(t, s, "a/", "a/b"); len(names) != 0 {
		t.Errorf("list: %q", names)
	}
	absent(t, s, "nothing")
	absent(t, s, "no/such/folder")
	if s.String() == "" {
		t.Error("String is empty")
	}
}

func ranges(t *testing.T, s sinks.Sink, opts Options) {
	size := opts.Big/4 + 3
	data := Random(6, size)
	put(t, s, "object", data)
	for _, r := range []struct{ offset, length int64 }{
		{0, -1}, {0, size}, {0, 1}, {0, 0}, {0, size + 100}, {0, 10}, // the start
		{size / 2, 1000}, {1, size - 2}, {size / 3, size / 3}, {7, 0}, {7, -5}, // the middle
		{size - 1, 1}, {size - 1, -1}, {size - 10, 10}, {size - 10, 11}, {size - 10, 1 << 40}, // the end
		{size, -1}, {size, 0}, {size, 5}, // behind it
	} {
		want := data[r.offset:]
		if r.length >= 0 {
			want = want[:min(r.length, int64(len(want)))]
		}
		got, err := read(t.Context(), s, "object", r.offset, r.length)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("offset %d, length %d of %d: %s, %v; want %s", r.offset, r.length, size, abridge(got), err, abridge(want))
		}
	}
	for _, offset := range []int64{size + 1, size + 1000, -1} {
		for _, length := range []int64{-1, 0, 1} {
			_, err := read(t.Context(), s, "object", offset, length)
			refused(t, "read outside of the object", err)
			if errors.Is(err, sinks.ErrNotFound) {
				t.Errorf("offset %d: %v, though the object is there", offset, err)
			}
		}
	}
	_, err := read(t.Context(), s, "other", 3, 0)
	is(t, "an empty range of what is not there", err, sinks.ErrNotFound)
}

func concurrentReaders(t *testing.T, s sinks.Sink, opts Options) {
	data := Random(7, opts.Big/8)
	put(t, s, "object", data)
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(8, uint64(i)))
			for range 5 {
				offset := random.Int64N(int64(len(data)))
				length := random.Int64N(int64(len(data)) - offset)
				got, err := read(t.Context(), s, "object", offset, length)
				if err != nil || !bytes.Equal(got, data[offset:offset+length]) {
					t.Errorf("offset %d, length %d: %s, %v", offset, length, abridge(got), err)
				}
			}
		})
	}
	readers.Wait()
}

func stat(t *testing.T, s sinks.Sink, _ Options) {
	committed := put(t, s, "a/b", []byte("12345"))
	got, err := s.Stat(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "a/b" || got.Size != 5 {
		t.Errorf("stat: %+v", got)
	}
	// Commit may know the time less exactly than Stat.
	if d := got.ModTime.Sub(committed.ModTime).Abs(); d.Seconds() > 2 {
		t.Errorf("stat says %s, commit said %s", got.ModTime, committed.ModTime)
	}
	_, err = s.Stat(t.Context(), "a")
	is(t, "stat of what is only a folder", err, sinks.ErrNotFound)
	_, err = s.Open(t.Context(), "a", 0, -1)
	is(t, "open of what is only a folder", err, sinks.ErrNotFound)
	_, err = s.Stat(t.Context(), "a/b/c")
	is(t, "stat below an object", err, sinks.ErrNotFound)
	_, err = s.Open(t.Context(), "a/b/c", 0, -1)
	is(t, "open below an object", err, sinks.ErrNotFound)
}

func deletes(t *testing.T, s sinks.Sink, _ Options) {
	for _, name := range []string{"nothing", "no/such/folder"} {
		if err := s.Delete(t.Context(), name); err != nil {
			t.Errorf("delete of what is not there: %v", err)
		}
	}
	put(t, s, "a/b/c", []byte("first"))
	put(t, s, "a/d", []byte("stays"))
	for _, folder := range []string{"a", "a/b"} {
		if err := s.Delete(t.Context(), folder); err != nil {
			t.Errorf("delete of what is only a folder: %v", err)
		}
	}
	holds(t, s, "a/b/c", []byte("first"))
	for range 2 {
		if err := s.Delete(t.Context(), "a/b/c"); err != nil {
			t.Fatal(err)
		}
		absent(t, s, "a/b/c")
	}
	holds(t, s, "a/d", []byte("stays"))
	put(t, s, "a/b/c", []byte("the name is free again"))
	holds(t, s, "a/b/c", []byte("the name is free again"))
}

func abilities(t *testing.T, s sinks.Sink, _ Options) {
	first, err := s.Abilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range first.Notes {
		if note == "" {
			t.Error("a note is empty")
		}
	}
	if !first.ExclusiveCreate && len(first.Notes) == 0 {
		t.Error("what is lacking is not said")
	}
	second, err := s.Abilities(t.Context())
	if err != nil || second.ExclusiveCreate != first.ExclusiveCreate || second.Checksums != first.Checksums {
		t.Errorf("asked again: %+v, %v; before: %+v", second, err, first)
	}
	if names := list(t, s, "", ""); len(names) != 0 {
		t.Errorf("probing left %q", names)
	}
}

func closes(t *testing.T, s sinks.Sink, _ Options) {
	put(t, s, "a", []byte("data"))
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
