package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// ways are the two ways to write a file; tests run on both.
var ways = map[string]bool{"unnamed": false, "named": true}

// bothWays runs test on each way, in a root that does not exist yet.
func bothWays(t *testing.T, test func(t *testing.T, s *Sink)) {
	for way, named := range ways {
		t.Run(way, func(t *testing.T) { test(t, newSink(t, filepath.Join(t.TempDir(), "made", "by", "sink"), named)) })
	}
}

func newSink(t testing.TB, root string, named bool) *Sink {
	t.Helper()
	s, err := New(root)
	require.NoError(t, err)
	s.named = named
	return s
}

func mustPut(t testing.TB, s *Sink, name string, data []byte) {
	t.Helper()
	_, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{})
	require.NoError(t, err)
}

// tree is every path below root, drafts and foreign files included, except
// the folder of drafts itself.
func tree(t testing.TB, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		relative, relErr := filepath.Rel(root, path)
		if relErr != nil {
			return relErr
		}
		if relative != "." && relative != tempFolder {
			paths = append(paths, relative)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return paths
}

func TestConformance(t *testing.T) {
	many := 0
	if testing.Short() {
		many = 100 // each takes several syncs, and a folder's names are read at once
	}
	for way, named := range ways {
		t.Run(way, func(t *testing.T) {
			sinktest.Conformance(t, func(t *testing.T) sinks.Sink {
				return newSink(t, filepath.Join(t.TempDir(), "root"), named)
			}, sinktest.Options{Racers: 16, Rounds: 10, Many: many})
		})
	}
}

// TestWays guards the other tests: the unnamed way must not be the named one
// in disguise.
func TestWays(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Sink) {
		w, err := s.Create(t.Context(), "a", sinks.CreateOptions{})
		require.NoError(t, err)
		defer w.Abort() // nothing was written
		_, isNamed := w.(*writer).draft.(*named)
		if isNamed != s.named {
			t.Skipf("SKIPPED: this file system has no files without a name; the draft is a %T", w.(*writer).draft)
		}
	})
}

func TestModes(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Sink) {
		mustPut(t, s, "a/b", []byte("secret"))
		for path, want := range map[string]os.FileMode{
			s.path:                          0o700 | os.ModeDir,
			filepath.Dir(s.path):            0o700 | os.ModeDir,
			filepath.Join(s.path, "a"):      0o700 | os.ModeDir,
			filepath.Join(s.path, "a", "b"): 0o600,
		} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			if info.Mode() != want {
				t.Errorf("%s: %v, want %v", path, info.Mode(), want)
			}
		}
	})
}

// TestReadingMakesNothing: only writing makes the root.
func TestReadingMakesNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Sink) {
		for _, err := range s.List(t.Context(), "", "") {
			t.Error(err)
		}
		require.NoError(t, s.Delete(t.Context(), "a/b"))
		_, err := s.Abilities(t.Context())
		require.NoError(t, err)
		if _, err := os.Lstat(s.path); !os.IsNotExist(err) {
			t.Errorf("the root is there: %v", err)
		}
	})
}

// TestDeleteLeavesNoFolders: what was emptied goes, what is in use stays.
func TestDeleteLeavesNoFolders(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Sink) {
		mustPut(t, s, "a/b/c/d", nil)
		mustPut(t, s, "a/e", nil)
		require.NoError(t, s.Delete(t.Context(), "a/b/c/d"))
		if got := tree(t, s.path); len(got) != 2 || got[1] != filepath.Join("a", "e") {
			t.Errorf("left: %q", got)
		}
		require.NoError(t, s.Delete(t.Context(), "a/e"))
		if got := tree(t, s.path); len(got) != 0 {
			t.Errorf("left: %q", got)
		}
	})
}

func TestStringIsURL(t *testing.T) {
	if got := newSink(t, "/var/back ups", false).String(); got != "file:///var/back%20ups" {
		t.Error(got)
	}
	_, err := New("")
	require.Error(t, err, "an empty path is accepted")
}
