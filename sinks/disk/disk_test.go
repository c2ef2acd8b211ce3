package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// freshSink is a sink whose root does not exist yet.
func freshSink(t testing.TB) *Sink {
	t.Helper()
	return newSink(t, filepath.Join(t.TempDir(), "made", "by", "sink"))
}

func newSink(t testing.TB, root string) *Sink {
	t.Helper()
	s, err := New(root)
	require.NoError(t, err)
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
	sinktest.Conformance(t, func(t *testing.T) sinks.Sink {
		return newSink(t, filepath.Join(t.TempDir(), "root"))
	}, sinktest.Options{Racers: 16, Rounds: 10, Many: many})
}

func TestModes(t *testing.T) {
	s := freshSink(t)
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
}

// TestReadingMakesNothing: only writing makes the root.
func TestReadingMakesNothing(t *testing.T) {
	s := freshSink(t)
	for _, err := range s.List(t.Context(), "", "") {
		t.Error(err)
	}
	require.NoError(t, s.Delete(t.Context(), "a/b"))
	_, err := s.Abilities(t.Context())
	require.NoError(t, err)
	if _, err := os.Lstat(s.path); !os.IsNotExist(err) {
		t.Errorf("the root is there: %v", err)
	}
}

// TestDeleteLeavesNoFolders: what was emptied goes, what is in use stays.
func TestDeleteLeavesNoFolders(t *testing.T) {
	s := freshSink(t)
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
}

func TestStringIsURL(t *testing.T) {
	if got := newSink(t, "/var/back ups").String(); got != "file:///var/back%20ups" {
		t.Error(got)
	}
	_, err := New("")
	require.Error(t, err, "an empty path is accepted")
}
