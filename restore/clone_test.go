package restore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/safedir"
)

// TestCloneSharesBlocks: on a file system that can, the second and third member
// take no space of their own, and are equal to the first.
func TestCloneSharesBlocks(t *testing.T) {
	dir := mountDisk(t, filepath.Join(t.TempDir(), "disk"), 400<<20, "mkfs.xfs")
	image := open(t, makeDB(t, dbOptions{keys: 30000, valueSize: 1000, clusterVersion: "3.5.0"}))
	before, _, err := safedir.Free(dir)
	require.NoError(t, err)
	req := three(image, dir)
	res := execute(t, req, ExecOptions{})
	for _, m := range res.Members { // XFS preallocates behind a file's end; this releases it
		db := filepath.Join(m.DataDir, "member", "snap", "db")
		info, err := os.Stat(db)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(db, info.Size()))
	}
	after, _, err := safedir.Free(dir)
	require.NoError(t, err)
	if used, most := before-after, image.Size()*3/2+3*walBytes(); used > most {
		t.Errorf("three members of %d bytes use %d, want at most %d", image.Size(), used, most)
	}
	want := buckets(t, filepath.Join(res.Members[0].DataDir, "member", "snap", "db"))
	for _, m := range res.Members[1:] {
		if got := buckets(t, filepath.Join(m.DataDir, "member", "snap", "db")); len(got["key"]) != len(want["key"]) || len(got["key"]) != 30001 {
			t.Errorf("%s has %d keys", m.Name, len(got["key"]))
		}
	}
}
