package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

// Options size the suite. Zero fields take what is said beside them.
type Options struct {
	// Many is how many objects the listing of many has: 1100, so that pages of
	// 1000, the most S3 sends, are exceeded.
	Many int
	// Big is the size of the big object: 40 MiB and 7 bytes, so that uploads
	// have several parts and an odd last one.
	Big int64
	// Racers and Rounds size the races for one name: 8 racers in 5 rounds.
	Racers, Rounds int
}

// Conformance runs what every sink promises, each check on a sink of its own:
// open returns one that holds no objects, and cleans up with t.Cleanup. Locks
// are tested where they are configured.
func Conformance(t *testing.T, open func(t *testing.T) sinks.Sink, opts Options) {
	opts.Many = cmp.Or(opts.Many, 1100)
	opts.Big = cmp.Or(opts.Big, 40<<20+7)
	opts.Racers = cmp.Or(opts.Racers, 8)
	opts.Rounds = cmp.Or(opts.Rounds, 5)
	for _, check := range []struct {
		name string
		run  func(*testing.T, sinks.Sink, Options)
	}{
		{"EmptyPlace", emptyPlace},
		{"Promise1WholeOrAbsent", wholeOrAbsent},
		{"Promise2WrittenOnce", writtenOnce},
		{"Promise2OneWinner", oneWinner},
		{"EmptyObject", emptyObject},
		{"BigObject", bigObject},
		{"OddSizes", oddSizes},
		{"AbortLeavesNothing", abortLeavesNothing},
		{"ClosedWriter", closedWriter},
		{"CancelledCalls", cancelledCalls},
		{"CancelledWrite", cancelledWrite},
		{"CancelledRead", cancelledRead},
		{"InvalidNames", invalidNames},
		{"LongName", longName},
		{"Ranges", ranges},
		{"ConcurrentReaders", concurrentReaders},
		{"Stat", stat},
		{"Delete", deletes},
		{"ListOrder", listOrder},
		{"ListPrefixAndAfter", listPrefixAndAfter},
		{"ListMany", listMany},
		{"ListStopsEarly", listStopsEarly},
		{"Abilities", abilities},
		{"Close", closes},
	} {
		t.Run(check.name, func(t *testing.T) { check.run(t, open(t), opts) })
	}
}

// Random returns size bytes that do not compress and are the same for the same
// seed.
func Random(seed uint64, size int64) []byte {
	data := make([]byte, size)
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	rand.NewChaCha8(key).Read(data) // it never fails
	return data
}

func put(t *testing.T, s sinks.Sink, name string, data []byte) sinks.Object {
	t.Helper()
	object, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{})
	require.NoError(t, err, "put %s", name)
	return object
}

func create(ctx context.Context, t *testing.T, s sinks.Sink, name string) sinks.Writer {
	t.Helper()
	w, err := s.Create(ctx, name, sinks.CreateOptions{})
	require.NoError(t, err, "create %s", name)
	return w
}

func write(t *testing.T, w sinks.Writer, data []byte) {
	t.Helper()
	if n, err := w.Write(data); n != len(data) || err != nil {
		t.Fatalf("write %d bytes: %d, %v", len(data), n, err)
	}
}

func read(ctx context.Context, s sinks.Sink, name string, offset, length int64) ([]byte, error) {
	r, err := s.Open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return data, err
}

// holds fails unless name has exactly this content, by Open, Stat and List.
func holds(t *testing.T, s sinks.Sink, name string, want []byte) {
	t.Helper()
	got, err := read(t.Context(), s, name, 0, -1)
	if err != nil {
		t.Errorf("read %s: %v", name, err)
	} else if !bytes.Equal(got, want) {
		t.Errorf("read %s: %s, want %s", name, abridge(got), abridge(want))
	}
	object, err := s.Stat(t.Context(), name)
	if err != nil {
		t.Errorf("stat %s: %v", name, err)
	} else if object.Name != name || object.Size != int64(len(want)) {
		t.Errorf("stat %s: %+v, want %d bytes", name, object, len(want))
	}
	if names := list(t, s, name, ""); !slices.Contains(names, name) {
		t.Errorf("list %s*: %q", name, names)
	}
}

// absent fails unless no call shows name.
func absent(t *testing.T, s sinks.Sink, name string) {
	t.Helper()
	_, err := s.Stat(t.Context(), name)
	require.ErrorIs(t, err, sinks.ErrNotFound, "stat "+name)
	_, err = read(t.Context(), s, name, 0, -1)
	require.ErrorIs(t, err, sinks.ErrNotFound, "open "+name)
	if names := list(t, s, "", ""); slices.Contains(names, name) {
		t.Errorf("%s is listed among %q", name, names)
	}
}

func list(t *testing.T, s sinks.Sink, prefix, after string) []string {
	t.Helper()
	var names []string
	for object, err := range s.List(t.Context(), prefix, after) {
		require.NoError(t, err, "list %q after %q", prefix, after)
		names = append(names, object.Name)
	}
	return names
}

func abridge(data []byte) string {
	if len(data) <= 32 {
		return fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("%d bytes, %x…", len(data), data[:8])
}

// soon is how long a call may take to notice that its context has ended.
const soon = 10 * time.Second

// cancelledCalls: with a context that has ended no call succeeds.
func cancelledCalls(t *testing.T, s sinks.Sink, _ Options) {
	put(t, s, "there", []byte("data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sinks.Put(ctx, s, "new", []byte("data"), sinks.CreateOptions{})
	require.ErrorIs(t, err, context.Canceled, "put")
	_, err = read(ctx, s, "there", 0, -1)
	require.ErrorIs(t, err, context.Canceled, "open and read")
	_, err = s.Stat(ctx, "there")
	require.ErrorIs(t, err, context.Canceled, "stat")
	require.ErrorIs(t, s.Delete(ctx, "there"), context.Canceled, "delete")
	err = nil
	for _, e := range s.List(ctx, "", "") {
		err = e
	}
	require.ErrorIs(t, err, context.Canceled, "list")

	w := create(t.Context(), t, s, "new")
	write(t, w, []byte("data"))
	_, err = w.Commit(ctx)
	require.ErrorIs(t, err, context.Canceled, "commit")
	require.NoError(t, w.Abort(), "abort after a cancelled commit")
	absent(t, s, "new")
	holds(t, s, "there", []byte("data"))
}

// cancelledWrite: a writer whose context ends midway fails soon, and leaves
// nothing.
func cancelledWrite(t *testing.T, s sinks.Sink, opts Options) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := create(ctx, t, s, "cancelled")
	data := Random(4, 1<<20)
	write(t, w, data)
	stop := time.AfterFunc(20*time.Millisecond, cancel)
	defer stop.Stop()
	// It may take some more before it looks, but not for ever.
	var err error
	for end := time.Now().Add(soon); err == nil && time.Now().Before(end); {
		if ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_, err = w.Write(data)
	}
	require.ErrorIs(t, err, context.Canceled, "write")
	require.NoError(t, w.Abort(), "abort")
	absent(t, s, "cancelled")
}

// cancelledRead: a reader whose context ends midway never ends cleanly.
func cancelledRead(t *testing.T, s sinks.Sink, opts Options) {
	put(t, s, "big", Random(5, opts.Big))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Open(ctx, "big", 0, -1)
	require.NoError(t, err)
	_, err = io.ReadFull(r, make([]byte, 1000))
	require.NoError(t, err)
	cancel()
	began := time.Now()
	_, err = io.Copy(io.Discard, r)
	require.ErrorIs(t, err, context.Canceled, "read on")
	if took := time.Since(began); took > soon {
		t.Errorf("the reader took %s to notice", took)
	}
	require.NoError(t, r.Close(), "close")
}

// tricky are names whose order by bytes is not the order in which folders are
// walked: '-' and '.' come before '/', letters and digits after it.
var tricky = []string{
	"a-b", "a.b", "a/b", "ab", "a0", "a/b-c/d", "a/b.c", "a-b-", "A", "a.b.c/d", "a-/x", "a./x", "a1/x", "b/a", "b-/a",
	"z/y/x/w", "z/y-/x", "z/y.x", "z-", "_", "0", "-",
}

// listOrder: names come in the order of their bytes, each once, with what Stat
// says of them.
func listOrder(t *testing.T, s sinks.Sink, _ Options) {
	for i, name := range tricky {
		put(t, s, name, make([]byte, i))
	}
	want := slices.Sorted(slices.Values(tricky))
	if got := list(t, s, "", ""); !slices.Equal(got, want) {
		t.Errorf("list:\n%q, want\n%q", got, want)
	}
	for object, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		stat, err := s.Stat(t.Context(), object.Name)
		if err != nil || stat.Size != object.Size || stat.ModTime.Unix() != object.ModTime.Unix() {
			t.Errorf("listed %+v, stat %+v, %v", object, stat, err)
		}
	}
}

// listPrefixAndAfter compares every prefix and every start with the plainest
// way to choose.
func listPrefixAndAfter(t *testing.T, s sinks.Sink, _ Options) {
	for _, name := range tricky {
		put(t, s, name, nil)
	}
	sorted := slices.Sorted(slices.Values(tricky))
	prefixes := []string{"", "/", "a/b/", "nothing", "~", "..", "../", ".tmp/", "a//", "/a", "a/b/c/d/e"}
	for _, name := range tricky {
		for i := range name {
			prefixes = append(prefixes, name[:i+1])
		}
	}
	slices.Sort(prefixes)
	afters := append([]string{"", "a", "a/", "a/a", "a/z", "a-z", "!", "~"}, tricky...)
	for _, prefix := range slices.Compact(prefixes) {
		starts := afters
		if len(prefix) > 3 {
			starts = afters[:8] // every request costs something on a real server
		}
		for _, after := range starts {
			var want []string
			for _, name := range sorted {
				if strings.HasPrefix(name, prefix) && name > after {
					want = append(want, name)
				}
			}
			if got := list(t, s, prefix, after); !slices.Equal(got, want) {
				t.Errorf("list %q after %q: %q, want %q", prefix, after, got, want)
			}
		}
	}
}

// listMany: more objects than one page holds, and starts round its borders.
func listMany(t *testing.T, s sinks.Sink, opts Options) {
	names := make([]string, opts.Many)
	var (
		writers sync.WaitGroup
		next    = make(chan string)
	)
	for range 8 {
		writers.Go(func() {
			for name := range next {
				if _, err := sinks.Put(t.Context(), s, name, nil, sinks.CreateOptions{}); err != nil {
					t.Errorf("put %s: %v", name, err)
				}
			}
		})
	}
	for i := range names {
		names[i] = fmt.Sprintf("many/%02x/%04x", i%7, i)
		next <- names[i]
	}
	close(next)
	writers.Wait()
	put(t, s, "many-more", nil)
	put(t, s, "man", nil)
	slices.Sort(names)
	if got := list(t, s, "many/", ""); !slices.Equal(got, names) {
		t.Fatalf("list: %d names, want %d", len(got), len(names))
	}
	for _, start := range []int{0, 1, 998, 999, 1000, 1001, len(names) / 2, len(names) - 2, len(names) - 1} {
		if start >= len(names) {
			continue
		}
		if got := list(t, s, "many/", names[start]); !slices.Equal(got, names[start+1:]) {
			t.Errorf("list after %s: %d names, want %d", names[start], len(got), len(names)-start-1)
		}
	}
}

// listStopsEarly: a loop that is left is not continued, and may be started
// anew; objects may come and go meanwhile.
func listStopsEarly(t *testing.T, s sinks.Sink, _ Options) {
	for _, name := range []string{"a/1", "a/2", "b/1", "b/2"} {
		put(t, s, name, nil)
	}
	objects := s.List(t.Context(), "", "")
	for range 2 {
		count := 0
		for _, err := range objects {
			require.NoError(t, err)
			if count++; count == 2 {
				break
			}
		}
	}
	for object, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		require.NoError(t, s.Delete(t.Context(), object.Name))
	}
	if names := list(t, s, "", ""); len(names) != 0 {
		t.Errorf("deleted while listing, left: %q", names)
	}
}
