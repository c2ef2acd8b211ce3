package restore

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

func mount(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		storetest.Unavailable(t, "cannot mount: "+string(out))
	}
	target := args[len(args)-1]
	t.Cleanup(func() {
		if out, err := exec.Command("umount", target).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %s", target, out)
		}
	})
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
