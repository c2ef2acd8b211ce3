package sinktest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			require.Error(t, err, "read outside of the object")
			if errors.Is(err, sinks.ErrNotFound) {
				t.Errorf("offset %d: %v, though the object is there", offset, err)
			}
		}
	}
	_, err := read(t.Context(), s, "other", 3, 0)
	require.ErrorIs(t, err, sinks.ErrNotFound, "an empty range of what is not there")
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
	require.NoError(t, err)
	if got.Name != "a/b" || got.Size != 5 {
		t.Errorf("stat: %+v", got)
	}
	// Commit may know the time less exactly than Stat.
	if d := got.ModTime.Sub(committed.ModTime).Abs(); d.Seconds() > 2 {
		t.Errorf("stat says %s, commit said %s", got.ModTime, committed.ModTime)
	}
	_, err = s.Stat(t.Context(), "a")
	require.ErrorIs(t, err, sinks.ErrNotFound, "stat of what is only a folder")
	_, err = s.Open(t.Context(), "a", 0, -1)
	require.ErrorIs(t, err, sinks.ErrNotFound, "open of what is only a folder")
	_, err = s.Stat(t.Context(), "a/b/c")
	require.ErrorIs(t, err, sinks.ErrNotFound, "stat below an object")
	_, err = s.Open(t.Context(), "a/b/c", 0, -1)
	require.ErrorIs(t, err, sinks.ErrNotFound, "open below an object")
}

func deletes(t *testing.T, s sinks.Sink, _ Options) {
	for _, name := range []string{"nothing", "no/such/folder"} {
		require.NoError(t, s.Delete(t.Context(), name), "delete of what is not there")
	}
	put(t, s, "a/b/c", []byte("first"))
	put(t, s, "a/d", []byte("stays"))
	for _, folder := range []string{"a", "a/b"} {
		require.NoError(t, s.Delete(t.Context(), folder), "delete of what is only a folder")
	}
	holds(t, s, "a/b/c", []byte("first"))
	for range 2 {
		require.NoError(t, s.Delete(t.Context(), "a/b/c"))
		absent(t, s, "a/b/c")
	}
	holds(t, s, "a/d", []byte("stays"))
	put(t, s, "a/b/c", []byte("the name is free again"))
	holds(t, s, "a/b/c", []byte("the name is free again"))
}

func abilities(t *testing.T, s sinks.Sink, _ Options) {
	first, err := s.Abilities(t.Context())
	require.NoError(t, err)
	for _, note := range first.Notes {
		if note == "" {
			t.Error("a note is empty")
		}
	}
	if !first.ExclusiveCreate && len(first.Notes) == 0 {
		t.Error("what is lacking is not said")
	}
	second, err := s.Abilities(t.Context())
	if err != nil || second.ExclusiveCreate != first.ExclusiveCreate {
		t.Errorf("asked again: %+v, %v; before: %+v", second, err, first)
	}
	if names := list(t, s, "", ""); len(names) != 0 {
		t.Errorf("probing left %q", names)
	}
}

func closes(t *testing.T, s sinks.Sink, _ Options) {
	put(t, s, "a", []byte("data"))
	require.NoError(t, s.Close(), "close")
}

// wholeOrAbsent: no call shows an object before Commit, and all do after.
func wholeOrAbsent(t *testing.T, s sinks.Sink, opts Options) {
	data := Random(1, opts.Big/3)
	w := create(t.Context(), t, s, "folder/object")
	absent(t, s, "folder/object")
	write(t, w, data[:len(data)/2])
	absent(t, s, "folder/object")
	write(t, w, data[len(data)/2:])
	absent(t, s, "folder/object")
	before := time.Now()
	object, err := w.Commit(t.Context())
	require.NoError(t, err)
	if object.Name != "folder/object" || object.Size != int64(len(data)) {
		t.Errorf("Commit: %+v", object)
	}
	// Clocks of other machines differ, but not by so much in a test.
	if object.ModTime.Before(before.Add(-time.Hour)) || object.ModTime.After(time.Now().Add(time.Hour)) {
		t.Errorf("Commit: modified at %s", object.ModTime)
	}
	holds(t, s, "folder/object", data)
}

// writtenOnce: a name that is taken is refused, by Create or by Commit, and
// the first content stays.
func writtenOnce(t *testing.T, s sinks.Sink, _ Options) {
	needsExclusiveCreate(t, s)
	put(t, s, "a/taken", []byte("first"))
	_, err := sinks.Put(t.Context(), s, "a/taken", []byte("the second"), sinks.CreateOptions{})
	require.ErrorIs(t, err, sinks.ErrExists, "put again")
	holds(t, s, "a/taken", []byte("first"))

	early := create(t.Context(), t, s, "a/late")
	write(t, early, []byte("was created first, is committed last"))
	put(t, s, "a/late", []byte("won"))
	_, err = early.Commit(t.Context())
	require.ErrorIs(t, err, sinks.ErrExists, "commit to a name taken meanwhile")
	require.NoError(t, early.Abort(), "abort after a failed commit")
	holds(t, s, "a/late", []byte("won"))
}

// oneWinner: of many that race for one name exactly one succeeds, the others
// learn that they lost, and what stays is the winner's.
func oneWinner(t *testing.T, s sinks.Sink, opts Options) {
	needsExclusiveCreate(t, s)
	for round := range opts.Rounds {
		name := "race/" + string(rune('a'+round))
		var (
			racers  sync.WaitGroup
			start   = make(chan struct{})
			mu      sync.Mutex
			winners [][]byte
		)
		for racer := range opts.Racers {
			racers.Go(func() {
				data := Random(uint64(racer), 1000+int64(racer))
				<-start
				_, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					winners = append(winners, data)
				case !errors.Is(err, sinks.ErrExists):
					t.Errorf("racer %d: %v, want nil or %v", racer, err, sinks.ErrExists)
				}
			})
		}
		close(start)
		racers.Wait()
		if len(winners) != 1 {
			t.Fatalf("round %d: %d winners of %d", round, len(winners), opts.Racers)
		}
		holds(t, s, name, winners[0])
	}
}

func needsExclusiveCreate(t *testing.T, s sinks.Sink) {
	t.Helper()
	able, err := s.Abilities(t.Context())
	require.NoError(t, err)
	if !able.ExclusiveCreate {
		t.Skip("this sink says that it cannot create exclusively: not tested")
	}
}

func emptyObject(t *testing.T, s sinks.Sink, _ Options) {
	w := create(t.Context(), t, s, "empty")
	if object, err := w.Commit(t.Context()); err != nil || object.Size != 0 {
		t.Fatalf("commit: %+v, %v", object, err)
	}
	holds(t, s, "empty", nil)
	put(t, s, "empty-write", []byte{})
	holds(t, s, "empty-write", nil)
}

func bigObject(t *testing.T, s sinks.Sink, opts Options) {
	data := Random(2, opts.Big)
	w := create(t.Context(), t, s, "big")
	defer w.Abort() // only for the case that the test fails
	for rest, n := data, 1; len(rest) > 0; n = n*3 + 1 {
		n = min(n, len(rest), 9<<20)
		piece := append([]byte(nil), rest[:n]...)
		write(t, w, piece)
		clear(piece) // a Writer must not keep what it was given
		rest = rest[n:]
	}
	_, err := w.Commit(t.Context())
	require.NoError(t, err)
	holds(t, s, "big", data)
}

// oddSizes: sizes round the powers of two at which buffers and parts end.
func oddSizes(t *testing.T, s sinks.Sink, opts Options) {
	for _, size := range []int64{1, 511, 512, 513, 1<<16 - 1, 1 << 16, 1<<16 + 1, 5<<20 - 1, 5 << 20, 5<<20 + 1} {
		if size > opts.Big {
			break
		}
		name := "size/" + strings.Repeat("x", 1+int(size%97))
		data := Random(uint64(size), size)
		if object := put(t, s, name, data); object.Size != size {
			t.Errorf("commit of %d bytes says %d", size, object.Size)
		}
		holds(t, s, name, data)
	}
}

func abortLeavesNothing(t *testing.T, s sinks.Sink, opts Options) {
	for _, size := range []int64{0, 10, opts.Big / 2} {
		w := create(t.Context(), t, s, "aborted")
		write(t, w, Random(3, size))
		require.NoError(t, w.Abort(), "abort after %d bytes", size)
		absent(t, s, "aborted")
		require.NoError(t, w.Abort(), "second abort")
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := create(ctx, t, s, "aborted")
	write(t, w, []byte("something"))
	cancel()
	require.NoError(t, w.Abort(), "abort after the end of the context")
	absent(t, s, "aborted")
	put(t, s, "aborted", []byte("the name is still free"))
	if names := list(t, s, "", ""); len(names) != 1 {
		t.Errorf("list: %q, want one object", names)
	}
}

func closedWriter(t *testing.T, s sinks.Sink, _ Options) {
	for _, how := range []string{"commit", "abort"} {
		w := create(t.Context(), t, s, how)
		write(t, w, []byte("once"))
		if how == "commit" {
			_, err := w.Commit(t.Context())
			require.NoError(t, err)
		} else if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		_, err := w.Write([]byte("twice"))
		require.ErrorIs(t, err, sinks.ErrClosed, "write after "+how)
		_, err = w.Commit(t.Context())
		require.ErrorIs(t, err, sinks.ErrClosed, "commit after "+how)
		require.NoError(t, w.Abort(), "abort after %s", how)
	}
	holds(t, s, "commit", []byte("once"))
	absent(t, s, "abort")
}

func invalidNames(t *testing.T, s sinks.Sink, _ Options) {
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", ".a", "a/.b", ".tmp/a",
		"a b", "a\x00b", "a\nb", "ä", "a\\b", "a:b", "a*", "a?b", "a%2fb", strings.Repeat("a", 513),
	} {
		_, err := s.Create(t.Context(), name, sinks.CreateOptions{})
		require.Error(t, err, "create "+name)
		_, err = s.Open(t.Context(), name, 0, -1)
		require.Error(t, err, "open "+name)
		_, err = s.Stat(t.Context(), name)
		require.Error(t, err, "stat "+name)
		require.Error(t, s.Delete(t.Context(), name), "delete "+name)
	}
	if names := list(t, s, "", ""); len(names) != 0 {
		t.Errorf("list: %q", names)
	}
}

// longName: the longest name and the characters that are allowed.
func longName(t *testing.T, s sinks.Sink, _ Options) {
	element := strings.Repeat("Az09._-x", 12)
	name := strings.Repeat(element+"/", 5)[:485] + "abcdefghijklmnopqrstuvwxyz0"
	if len(name) != 512 {
		t.Fatalf("the name has %d bytes", len(name))
	}
	put(t, s, name, []byte("deep"))
	holds(t, s, name, []byte("deep"))
	require.NoError(t, s.Delete(t.Context(), name))
	absent(t, s, name)
}
