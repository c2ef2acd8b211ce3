package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// TestNoPermission: who may not read or write hears that, and never that
// nothing is there.
func TestNoPermission(t *testing.T) {
	outer := t.TempDir()
	root := filepath.Join(outer, "root")
	s := newSink(t, root)
	mustPut(t, s, "a/b", []byte("data"))
	require.NoError(t, os.Chmod(root, 0))
	sinktest.AsNobody(t, func() {
		denied := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, sinks.ErrDenied) || errors.Is(err, sinks.ErrNotFound) || !strings.Contains(err.Error(), "give the user") {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := sinks.Put(t.Context(), s, "c", nil, sinks.CreateOptions{})
		denied("put", err)
		_, err = s.Stat(t.Context(), "a/b")
		denied("stat", err)
		_, err = s.Open(t.Context(), "a/b", 0, -1)
		denied("open", err)
		denied("delete", s.Delete(t.Context(), "a/b"))
		err = nil
		for _, e := range s.List(t.Context(), "", "") {
			err = e
		}
		denied("list", err)
	})
	require.NoError(t, os.Chmod(root, 0o700))
}
