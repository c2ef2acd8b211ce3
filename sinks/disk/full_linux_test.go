package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

func freeBytes(t *testing.T, folder string) uint64 {
	t.Helper()
	var stat unix.Statfs_t
	require.NoError(t, unix.Statfs(folder, &stat))
	return stat.Bavail * uint64(stat.Bsize)
}

// TestPromise1DiskFull fills a small file system: the error says where and how
// much is free, nothing is left, the space comes back, and writing goes on.
func TestPromise1DiskFull(t *testing.T) {
	folder := storetest.SmallDisk(t, "3m")
	s := newSink(t, folder)
	mustPut(t, s, "kept", sinktest.Random(1, 1<<20))
	before := tree(t, folder)
	free := freeBytes(t, folder)
	for _, end := range []string{"abort", "commit"} {
		w, err := s.Create(t.Context(), "a/too-big", sinks.CreateOptions{})
		require.NoError(t, err)
		_, err = w.Write(sinktest.Random(2, 3<<20))
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "a/too-big in file://"+folder) || !strings.Contains(err.Error(), "free there") {
			t.Errorf("write: %v", err)
		}
		if end == "commit" {
			_, err = w.Commit(t.Context())
			require.ErrorIs(t, err, syscall.ENOSPC, "commit after a failed write")
		}
		require.NoError(t, w.Abort(), "abort")
		if after := tree(t, folder); len(after) != len(before) {
			t.Errorf("left after %s: %q, before %q", end, after, before)
		}
		if now := freeBytes(t, folder); now+64<<10 < free {
			t.Errorf("after %s %d bytes are free, before %d", end, now, free)
		}
	}
	mustPut(t, s, "a/fits", sinktest.Random(3, 1<<20))
}

// TestDiskFullOfFiles: without a free inode even an empty object fails, and
// says so.
func TestDiskFullOfFiles(t *testing.T) {
	folder := storetest.SmallDisk(t, "1m,nr_inodes=4")
	s := newSink(t, folder)
	var err error
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err = sinks.Put(t.Context(), s, name, nil, sinks.CreateOptions{}); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "files are free there") {
		t.Errorf("%v", err)
	}
}

func TestReadOnlyFileSystem(t *testing.T) {
	folder := storetest.SmallDisk(t, "1m")
	s := newSink(t, folder)
	mustPut(t, s, "a/b", []byte("data"))
	require.NoError(t, unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err := sinks.Put(t.Context(), s, "c", nil, sinks.CreateOptions{})
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "mount the file system for writing") {
		t.Errorf("put: %v", err)
	}
	require.ErrorIs(t, s.Delete(t.Context(), "a/b"), syscall.EROFS, "delete")
	if data, err := sinks.Get(t.Context(), s, "a/b", 10); err != nil || string(data) != "data" {
		t.Errorf("get: %q, %v", data, err)
	}
}

// TestMemoryIsNoted: a place that forgets on restart says so.
func TestMemoryIsNoted(t *testing.T) {
	s := newSink(t, filepath.Join(storetest.SmallDisk(t, "1m"), "not", "made"))
	able, err := s.Abilities(t.Context())
	if err != nil || len(able.Notes) != 1 || !strings.Contains(able.Notes[0], "in memory") || !able.ExclusiveCreate {
		t.Errorf("%+v, %v", able, err)
	}
}

// TestOtherMountBelow: a link cannot reach into another file system.
func TestOtherMountBelow(t *testing.T) {
	folder := storetest.SmallDisk(t, "1m")
	require.NoError(t, os.Mkdir(filepath.Join(folder, "a"), 0o700))
	require.NoError(t, unix.Mount("tmpfs", filepath.Join(folder, "a"), "tmpfs", 0, "size=1m"))
	defer unix.Unmount(filepath.Join(folder, "a"), unix.MNT_DETACH) // the outer mount goes too
	s := newSink(t, folder)
	_, err := sinks.Put(t.Context(), s, "a/b", nil, sinks.CreateOptions{})
	if !errors.Is(err, syscall.EXDEV) || !strings.Contains(err.Error(), "another mount") {
		t.Errorf("%v", err)
	}
	if left := tree(t, folder); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
