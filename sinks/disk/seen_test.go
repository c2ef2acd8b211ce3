package disk

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

// expectGone wants every call to say that the folder is gone, and to go on later.
func expectGone(t *testing.T, s *Sink) {
	t.Helper()
	calls := map[string]error{}
	_, calls["put"] = sinks.Put(t.Context(), s, "b/c", []byte("x"), sinks.CreateOptions{})
	_, calls["get"] = sinks.Get(t.Context(), s, "a/b", 100)
	_, calls["stat"] = s.Stat(t.Context(), "a/b")
	calls["delete"] = s.Delete(t.Context(), "a/b")
	_, calls["abilities"] = s.Abilities(t.Context())
	for _, calls["list"] = range s.List(t.Context(), "", "") {
	}
	for call, err := range calls {
		if err == nil || !errors.Is(err, errGone) || errors.Is(err, sinks.ErrNotFound) || !strings.Contains(err.Error(), "is it unmounted?") {
			t.Errorf("%s of a folder that is gone: %v", call, err)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.Rename(from, to))
}

func expectHolds(t *testing.T, s *Sink, name, want string) {
	t.Helper()
	if data, err := sinks.Get(t.Context(), s, name, 100); err != nil || string(data) != want {
		t.Errorf("%s: %q, %v", name, data, err)
	}
}

// TestGoneIsNotMadeAgain: a root that vanishes, with what is above it or alone,
// is an error until it is back, and nothing is made meanwhile.
func TestGoneIsNotMadeAgain(t *testing.T) {
	for name, moved := range map[string]func(root string) string{
		"the root":          func(root string) string { return root },
		"what is above it ": filepath.Dir,
	} {
		t.Run(name, func(t *testing.T) {
			s := freshSink(t)
			mustPut(t, s, "a/b", []byte("first"))
			there := moved(s.path)
			rename(t, there, there+".away")
			expectGone(t, s)
			if _, err := os.Lstat(there); !os.IsNotExist(err) {
				t.Errorf("%s was made: %v", there, err)
			}
			rename(t, there+".away", there)
			mustPut(t, s, "b/c", []byte("second"))
			expectHolds(t, s, "a/b", "first")
		})
	}
}

// whenLogged does something once, when a logger writes its first line.
type whenLogged struct {
	once sync.Once
	do   func()
}

func (w *whenLogged) Write(p []byte) (int, error) {
	w.once.Do(w.do)
	return len(p), nil
}

// TestGoneIsWaitedFor: with a time for trying again, a root that comes back meanwhile
// is no error.
func TestGoneIsWaitedFor(t *testing.T) {
	s := newSink(t, t.TempDir())
	mustPut(t, s, "a/b", []byte("first"))
	for call, do := range map[string]func() error{
		"stat":   func() error { _, err := s.Stat(t.Context(), "a/b"); return err },
		"put":    func() error { _, err := sinks.Put(t.Context(), s, "b/c", nil, sinks.CreateOptions{}); return err },
		"delete": func() error { return s.Delete(t.Context(), "b/d") },
		"list": func() (err error) {
			for _, err = range s.List(t.Context(), "", "") {
			}
			return err
		},
	} {
		rename(t, s.path, s.path+".away")
		back := &whenLogged{do: func() { rename(t, s.path+".away", s.path) }}
		s.Set(sinks.Options{Retry: sinks.Retry{For: time.Minute, Longest: time.Millisecond, Logger: slog.New(slog.NewTextHandler(back, nil))}})
		if err := do(); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestGoneBehindAnEmptyFolder: the mount point of what was unmounted is not the
// root, and stays empty.
func TestGoneBehindAnEmptyFolder(t *testing.T) {
	for _, object := range []string{"a/b", markerName} {
		t.Run(object, func(t *testing.T) {
			s := freshSink(t)
			mustPut(t, s, object, []byte("first"))
			expectHolds(t, s, object, "first")
			rename(t, s.path, s.path+".away")
			require.NoError(t, os.Mkdir(s.path, 0o700))
			expectGone(t, s)
			if made := tree(t, s.path); len(made) > 0 {
				t.Errorf("in its place were made: %q", made)
			}
			require.NoError(t, os.Remove(s.path))
			rename(t, s.path+".away", s.path)
			mustPut(t, s, "b/c", []byte("second"))
			expectHolds(t, s, object, "first")
		})
	}
}

// TestMountedAnew: with another device or inode it is the same folder if the
// marker is the one that was seen, and another if it is another's.
func TestMountedAnew(t *testing.T) {
	s := freshSink(t)
	mustPut(t, s, markerName, []byte("mine"))
	expectHolds(t, s, markerName, "mine")
	rename(t, s.path, s.path+".away")
	other := newSink(t, s.path)
	mustPut(t, other, markerName, []byte("another's"))
	expectGone(t, s)
	require.NoError(t, os.RemoveAll(s.path))
	mustPut(t, newSink(t, s.path), markerName, []byte("mine"))
	mustPut(t, s, "a/b", []byte("on"))
	expectHolds(t, s, "a/b", "on")
}

// TestEmptiedIsThere: deleting the last object does not make the root another.
func TestEmptiedIsThere(t *testing.T) {
	s := freshSink(t)
	mustPut(t, s, "a/b", nil)
	require.NoError(t, s.Delete(t.Context(), "a/b"))
	mustPut(t, s, "a/b", []byte("again"))
	expectHolds(t, s, "a/b", "again")
}
