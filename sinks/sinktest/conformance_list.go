package sinktest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/requorum/requorum/sinks"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			if count++; count == 2 {
				break
			}
		}
	}
	for object, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), object.Name); err != nil {
			t.Fatal(err)
		}
	}
	if names := list(t, s, "", ""); len(names) != 0 {
		t.Errorf("deleted while listing, left: %q", names)
	}
}
