package job

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// unsteady is a file that always has more bytes than its size says: what a file
// looks like that grows while it is read.
const unsteady = "/proc/self/status"

// A file that changes while it is read is read again, and given up, by name, when
// it never stands still.
func TestPackChanging(t *testing.T) {
	steady := filepath.Join(t.TempDir(), "steady")
	require.NoError(t, os.WriteFile(steady, []byte("content"), 0o600))
	for _, tt := range []struct{ changes, opened int }{{0, 1}, {1, 2}, {steadyTries - 1, steadyTries}, {steadyTries, steadyTries}} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			opened := 0
			p := &packer{ctx: t.Context(), tar: tar.NewWriter(&out)}
			err := p.file("name", "/the/file", func() (*os.File, error) {
				opened++
				if opened <= tt.changes {
					return os.Open(unsteady)
				}
				return os.Open(steady)
			})
			if opened != tt.opened {
				t.Errorf("it changes %d times: read %d times", tt.changes, opened)
			}
			gaveUp := tt.changes == steadyTries
			if gaveUp != (err != nil) || gaveUp && (!errors.Is(err, errChanges) || !strings.Contains(err.Error(), "/the/file")) {
				t.Errorf("it changes %d times: %v", tt.changes, err)
			}
			if !gaveUp && (p.content.Files != 1 || p.content.Bytes != 7) {
				t.Errorf("it changes %d times: %+v", tt.changes, p.content)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p := &packer{ctx: ended, tar: tar.NewWriter(&bytes.Buffer{})}
	require.ErrorIs(t, p.file("name", "/the/file", func() (*os.File, error) { return os.Open(unsteady) }), context.Canceled, "after the end")
}
