package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// TestRebuiltIsTaken: what was rebuilt beside the only member becomes its database without
// being copied; several members, and one in another file system, get copies.
func TestRebuiltIsTaken(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	client := c.Client(t)
	for i := range 20 {
		_, err := client.Put(t.Context(), fmt.Sprint("key", i), "value")
		require.NoError(t, err)
	}
	c.Kill(0)
	h, err := walreplay.OpenDataDir(t.Context(), c.Member(0).DataDir, "")
	require.NoError(t, err)
	defer h.Close()
	for name, x := range map[string]struct {
		scratch string
		members int
		taken   bool
	}{
		"one member":          {t.TempDir(), 1, true},
		"two members":         {t.TempDir(), 2, false},
		"another file system": {"/dev/shm", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			scratch, err := os.MkdirTemp(x.scratch, "taken")
			require.NoError(t, err)
			defer os.RemoveAll(scratch)
			o := walreplay.Options{ScratchDir: scratch}
			p, err := h.Resolve(t.Context(), walreplay.Target{}, "", o)
			require.NoError(t, err)
			image, err := h.Rebuild(t.Context(), p, o)
			require.NoError(t, err)
			before, err := os.Stat(image.Path())
			require.NoError(t, err)
			dir := t.TempDir()
			res := execute(t, Request{Image: image, InitialCluster: storetest.InitialCluster(t, memberNames(x.members)...), DataDir: filepath.Join(dir, "{name}")}, ExecOptions{})
			for _, m := range res.Members {
				path := filepath.Join(m.DataDir, "member", "snap", "db")
				after, err := os.Stat(path)
				require.NoError(t, err)
				if os.SameFile(before, after) != x.taken {
					t.Errorf("%s: taken %t, want %t", m.Name, !x.taken, x.taken)
				}
				facts, err := open(t, path).Facts(t.Context())
				if err != nil || facts.Revision != res.RevisionAfter {
					t.Errorf("%s has revision %d instead of %d, %v", m.Name, facts.Revision, res.RevisionAfter, err)
				}
			}
			if r, err := image.Open(t.Context()); x.taken && !errors.Is(err, os.ErrNotExist) || !x.taken && err != nil {
				t.Errorf("open afterwards: %v, %v", r, err)
			}
			require.NoError(t, image.Close())
			left, err := os.ReadDir(scratch)
			require.NoError(t, err)
			if len(left) > 0 {
				t.Errorf("left in the scratch folder: %v", left)
			}
		})
	}
}
