//go:build unix

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

// TestForeignFiles: what is no object is neither shown nor touched.
func TestForeignFiles(t *testing.T) {
	s := freshSink(t)
	mustPut(t, s, "a/b", []byte("data"))
	at := func(name string) string { return filepath.Join(s.path, name) }
	for _, name := range []string{".hidden", "a/.swp", "with space", "ümlaut", "lost+found"} {
		require.NoError(t, os.WriteFile(at(name), nil, 0o600))
	}
	if err := errors.Join(
		os.Mkdir(at("empty"), 0o700),
		os.Symlink("a/b", at("latest")),
		os.Symlink("nowhere", at("dangling")),
		syscall.Mkfifo(at("pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	before := tree(t, s.path)
	var names []string
	for object, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		names = append(names, object.Name)
	}
	if !slices.Equal(names, []string{"a/b"}) {
		t.Errorf("list: %q", names)
	}
	for _, name := range []string{"empty", "latest", "dangling", "pipe"} {
		_, err := s.Open(t.Context(), name, 0, -1) // would wait for ever on the pipe
		require.ErrorIs(t, err, sinks.ErrNotFound, "open %s", name)
		_, err = sinks.Put(t.Context(), s, name, nil, sinks.CreateOptions{})
		if err == nil || errors.Is(err, sinks.ErrExists) || !strings.Contains(err.Error(), "not an object") {
			t.Errorf("put %s: %v", name, err)
		}
		require.NoError(t, s.Delete(t.Context(), name), "delete %s", name)
	}
	if after := tree(t, s.path); !slices.Equal(after, before) {
		t.Errorf("the folder holds %q, before %q", after, before)
	}
}

// TestLinksLeadNowhere: nothing is read or written outside of the root, and a
// folder that a list would leave out is an error instead.
func TestLinksLeadNowhere(t *testing.T) {
	s := freshSink(t)
	mustPut(t, s, "z/object", nil)
	mustPut(t, s, "y/object", nil)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(s.path, "y", "out")))
	if r, err := s.Open(t.Context(), "y/out/secret", 0, -1); err == nil {
		r.Close() // the test has failed
		t.Error("read through a link that leads out")
	}
	_, err := sinks.Put(t.Context(), s, "y/out/new", nil, sinks.CreateOptions{})
	require.Error(t, err, "wrote through a link that leads out")
	require.Error(t, s.Delete(t.Context(), "y/out/secret"), "deleted through a link that leads out")
	if got := tree(t, outside); !slices.Equal(got, []string{"secret"}) {
		t.Errorf("outside: %q", got)
	}
	count := func(prefix, after string) (n int, err error) {
		for _, e := range s.List(t.Context(), prefix, after) {
			n, err = n+1, e
		}
		return n, err
	}
	_, err = count("", "")
	require.ErrorContains(t, err, "y/out is a symbolic link", "list")
	// Folders that cannot hold a name in range are not even read: they
	// would fail like that.
	for _, args := range [][2]string{{"z", ""}, {"z/", ""}, {"", "y0"}, {"", "y/out0"}, {"y/ob", ""}} {
		if n, err := count(args[0], args[1]); err != nil || n != 1 {
			t.Errorf("list %q: %d, %v", args, n, err)
		}
	}
}

// TestRootIsAFile, and so is a folder on the way to it.
func TestRootIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("not ours"), 0o600))
	for _, path := range []string{file, filepath.Join(file, "below")} {
		s := newSink(t, path)
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, syscall.ENOTDIR) || errors.Is(err, sinks.ErrNotFound) || !strings.Contains(err.Error(), "name another folder") {
				t.Errorf("%s in %s: %v", what, path, err)
			}
		}
		_, err := sinks.Put(t.Context(), s, "a", nil, sinks.CreateOptions{})
		check("put", err)
		_, err = s.Stat(t.Context(), "a")
		check("stat", err)
		check("delete", s.Delete(t.Context(), "a"))
		err = nil
		for _, e := range s.List(t.Context(), "", "") {
			err = e
		}
		check("list", err)
	}
}

// TestFolderAndObjectOfOneName is what callers owe not to do; the errors must
// not claim that an object exists.
func TestFolderAndObjectOfOneName(t *testing.T) {
	s := freshSink(t)
	mustPut(t, s, "a", nil)
	mustPut(t, s, "b/c", nil)
	for _, name := range []string{"a/x", "a/x/y", "b"} {
		_, err := sinks.Put(t.Context(), s, name, nil, sinks.CreateOptions{})
		if err == nil || errors.Is(err, sinks.ErrExists) {
			t.Errorf("put %s: %v", name, err)
		}
	}
	if got := tree(t, s.path); !slices.Equal(got, []string{"a", "b", filepath.Join("b", "c")}) {
		t.Errorf("left: %q", got)
	}
}
