package restore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

func mount(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		storetest.Unavailable(t, "cannot mount: "+string(out))
	}
	target := args[len(args)-1]
	t.Cleanup(func() {
		// A loop device keeps its file a moment longer than its mount.
		out, err := exec.Command("umount", target).CombinedOutput()
		for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			out, err = exec.Command("umount", target).CombinedOutput()
		}
		if err != nil {
			t.Errorf("umount %s: %s", target, out)
		}
	})
}

// mountDisk mounts a new file system of so many bytes, in a file, and gives where.
func mountDisk(t testing.TB, disk string, size int64, mkfs ...string) (dir string) {
	t.Helper()
	storetest.NeedRoot(t)
	mkfs[0] = storetest.Program(t, mkfs[0])
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, size))
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], "-q", disk)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %s", mkfs[0], out)
	}
	dir = t.TempDir()
	mount(t, "-o", "loop", disk, dir)
	return dir
}

// TestDiskFull: too little space is noticed before the first byte, and a disk
// that fills up meanwhile leaves nothing behind.
func TestDiskFull(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	mount(t, "-t", "tmpfs", "-o", "size=20m", "tmpfs", dir)
	image := open(t, makeDB(t, dbOptions{keys: 8000, valueSize: 1000, clusterVersion: "3.5.0"}))
	req := three(image, dir)
	p := plan(t, req)
	fs, err := p.Check(t.Context(), ExecOptions{})
	if !errors.Is(err, ErrNoSpace) || len(fs.FileSystems) != 1 || fs.FileSystems[0].Need < 3*image.Size() {
		t.Errorf("the check says %v, %+v", err, fs)
	}
	_, err = Execute(t.Context(), p, image, ExecOptions{})
	require.ErrorIs(t, err, ErrNoSpace)
	if got := names(t, dir); got != "" {
		t.Errorf("left %s", got)
	}
	p.BytesDB, p.BytesWAL = 1, 1 // so that the check passes and the disk decides
	_, err = Execute(t.Context(), p, image, ExecOptions{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	if got := names(t, dir); got != "" {
		t.Errorf("left %s", got)
	}
}

// TestMountedDataDirectory: the root of a mount can neither be renamed nor
// replaced, so everything happens inside it, WAL directories too.
func TestMountedDataDirectory(t *testing.T) {
	storetest.NeedRoot(t)
	for _, kind := range []string{"tmpfs", "bind"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			for _, path := range []string{"data/m1", "wal/m1"} {
				target := filepath.Join(dir, path)
				mkdir(t, target)
				if kind == "bind" {
					source := filepath.Join(dir, "volumes", path)
					mkdir(t, source)
					mount(t, "--bind", source, target)
				} else {
					mount(t, "-t", "tmpfs", "-o", "size=100m", "tmpfs", target)
				}
				mkdir(t, filepath.Join(target, "lost+found"))
			}
			l := layout{wal: true}
			image := makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"})
			req := l.prepareAgain(dir)
			req.Image = open(t, image)
			for range 2 { // empty at first, then with what was restored
				res := execute(t, req, ExecOptions{Only: "m1"})
				if c, why := l.judge(t, dir, "m1", res.Plan); c != complete {
					t.Errorf("m1 is %s %s", c, why)
				}
				req.SetAside = true
			}
			// What others mount below is refused.
			if kind == "bind" {
				return
			}
			member := filepath.Join(dir, "data", "m1", "member")
			mount(t, "-t", "tmpfs", "tmpfs", member)
			write(t, filepath.Join(member, "snap", "db"), "x")
			_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{Only: "m1"})
			require.ErrorContains(t, err, "mount of its own", "a member folder that is a mount")
		})
	}
}

// TestLostWrites: from a database that the file system has taken, and could not write to its disk, no
// restore succeeds.
func TestLostWrites(t *testing.T) {
	storetest.NeedRoot(t)
	small := t.TempDir()
	mount(t, "-t", "tmpfs", "-o", "size=6m", "tmpfs", small)
	dir := mountDisk(t, filepath.Join(small, "disk"), 64<<20, "mkfs.ext4", "-O", "^has_journal") // more than there is room for
	data, err := os.ReadFile(makeDB(t, dbOptions{keys: 9000, valueSize: 1000, clusterVersion: "3.5.0"}))
	require.NoError(t, err)
	// Where nobody looks at that, reading does not show it.
	for name, open := range map[string]func(string) (*snapshot.File, error){"synced": snapshot.OpenFile, "unsynced": snapshot.OpenUnsynced} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		_ = exec.Command("sync", "--file-system", dir).Run() // as the kernel does some seconds later
		image, err := open(path)
		require.NoError(t, err)
		p, err := NewPlan(t.Context(), three(image, t.TempDir()))
		if err == nil {
			_, err = Execute(t.Context(), p, image, ExecOptions{})
		}
		if lost := errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC); lost != (name == "unsynced") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
