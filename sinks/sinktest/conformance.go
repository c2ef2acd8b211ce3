package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

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
		{"Promise3WrittenOnce", writtenOnce},
		{"Promise3OneWinner", oneWinner},
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
	if err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
	return object
}

func create(ctx context.Context, t *testing.T, s sinks.Sink, name string) sinks.Writer {
	t.Helper()
	w, err := s.Create(ctx, name, sinks.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
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
	is(t, "stat "+name, err, sinks.ErrNotFound)
	_, err = read(t.Context(), s, name, 0, -1)
	is(t, "open "+name, err, sinks.ErrNotFound)
	if names := list(t, s, "", ""); slices.Contains(names, name) {
		t.Errorf("%s is listed among %q", name, names)
	}
}

func list(t *testing.T, s sinks.Sink, prefix, after string) []string {
	t.Helper()
	var names []string
	for object, err := range s.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatalf("list %q after %q: %v", prefix, after, err)
		}
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
