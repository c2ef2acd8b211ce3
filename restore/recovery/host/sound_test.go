package host

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A database that was found sound is checked again when it was changed, and one that was not
// each time; that its folder is renamed changes nothing.
func TestCheckedOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "member")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path, times := filepath.Join(dir, "db"), 0
	require.NoError(t, os.WriteFile(path, []byte("database"), 0o600))
	var bad error
	check := onceEach(func(context.Context, string, io.ReaderAt, int64) error { times++; return bad })
	expect := func(what string, more int) {
		t.Helper()
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		before := times
		if err := check(t.Context(), path, f, 8); !errors.Is(err, bad) || times-before != more {
			t.Errorf("%s: checked %d times instead of %d: %v", what, times-before, more, err)
		}
	}
	bad = errors.New("damaged")
	expect("damaged", 1)
	expect("damaged, again", 1)
	bad = nil
	expect("sound", 1)
	expect("sound, again", 0)
	require.NoError(t, os.Rename(dir, dir+".old"))
	path = filepath.Join(dir+".old", "db")
	expect("set aside", 0)

	info, err := os.Stat(path)
	require.NoError(t, err)
	for changed := false; !changed; { // a clock's tick later
		require.NoError(t, os.WriteFile(path, []byte("another1"), 0o600))
		now, err := os.Stat(path)
		require.NoError(t, err)
		changed = now.ModTime().After(info.ModTime())
	}
	require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime())) // as one does who hides it
	expect("written to", 1)
	require.NoError(t, os.WriteFile(path+"2", []byte("database"), 0o600))
	require.NoError(t, os.Rename(path+"2", path))
	expect("replaced", 1)
}
