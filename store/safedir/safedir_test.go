package safedir

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

const other = 2379 // a user that is nobody else here

// host is a folder of root's, with one of another user's in it.
func host(t *testing.T) (root, theirs string) {
	t.Helper()
	storetest.NeedRoot(t)
	root = t.TempDir()
	theirs = filepath.Join(root, "theirs")
	must(t, os.Mkdir(theirs, 0o700), os.Lchown(theirs, other, other), os.Mkdir(filepath.Join(root, "ours"), 0o700))
	put(t, filepath.Join(root, "ours", "secret"))
	return root, theirs
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	require.NoError(t, errors.Join(errs...))
}

func put(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("x"), 0o600))
}

// refused does all that goes by a path, and wants it to be refused.
func refused(t *testing.T, path string) {
	t.Helper()
	for name, do := range map[string]func() error{
		"open":   func() error { _, err := Open(path); return err },
		"write":  func() error { _, err := OpenWritable(path); return err },
		"create": func() error { _, err := Create(path); return err },
		"read":   func() error { _, err := ReadFile(path, 10); return err },
		"sync":   func() error { return Sync(path) },
		"walk":   func() error { return Walk(path, func(*os.File, fs.FileInfo) error { return nil }) },
	} {
		if err := do(); err == nil {
			t.Errorf("%s %s: no error", name, path)
		}
	}
}

func TestLinks(t *testing.T) {
	root, theirs := host(t)
	secret := filepath.Join(root, "ours", "secret")
	must(t, os.Symlink(secret, filepath.Join(theirs, "file")), os.Symlink(filepath.Dir(secret), filepath.Join(theirs, "folder")), os.Symlink("../ours", filepath.Join(theirs, "relative")))
	refused(t, filepath.Join(theirs, "file"))
	for _, name := range []string{"folder", "relative"} {
		refused(t, filepath.Join(theirs, name, "secret"))
		path := filepath.Join(theirs, name)
		for what, err := range map[string]error{
			"mkdir": Mkdir(filepath.Join(path, "new")), "remove": Remove(filepath.Join(path, "secret")), "remove all": RemoveAll(filepath.Join(path, "secret")),
			"rename from": Rename(filepath.Join(path, "secret"), filepath.Join(root, "moved")), "rename to": Rename(secret, filepath.Join(path, "moved")),
			"make private": errOf(Private(path)), "list": errOf(Names(path)), "open": errOf(OpenDir(path)), "stat": errOf(Stat(path)),
		} {
			if err == nil {
				t.Errorf("%s by %s: no error", what, path)
			}
		}
		if _, err := OpenDir(path); !errors.Is(err, ErrLink) && !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%v, want ErrLink", err)
		}
	}
	// What is in root's folder is followed, and by it what an administrator made.
	must(t, os.Symlink("theirs/../ours", filepath.Join(root, "link")), os.Symlink("link/secret", filepath.Join(root, "second")))
	f, err := Open(filepath.Join(root, "second"))
	must(t, err)
	if f.Name() != secret {
		t.Errorf("its name is %s, want %s", f.Name(), secret)
	}
	must(t, f.Close())
	// A folder with the sticky bit, as /tmp: by the link's owner.
	must(t, os.Mkdir(filepath.Join(root, "tmp"), 0o700), os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky))
	for _, uid := range []int{0, other} {
		link := filepath.Join(root, "tmp", "link")
		must(t, os.RemoveAll(link), os.Symlink(secret, link), os.Lchown(link, uid, uid))
		_, err := ReadFile(link, 10)
		if (err == nil) != (uid == 0) {
			t.Errorf("a link of user %d in a folder like /tmp: %v", uid, err)
		}
	}
	// A folder of root's that an ACL opens for another user.
	must(t, os.Mkdir(filepath.Join(root, "opened"), 0o700), os.Symlink(secret, filepath.Join(root, "opened", "link")))
	setACL(t, filepath.Join(root, "opened"))
	refused(t, filepath.Join(root, "opened", "link"))
	must(t, os.Symlink("a", filepath.Join(root, "b")), os.Symlink("b", filepath.Join(root, "a")))
	_, err = Stat(filepath.Join(root, "a"))
	require.Error(t, err, "links in a circle: no error")
	// Removing takes the link, and not what it leads to.
	must(t, RemoveAll(theirs))
	_, err = os.Stat(secret)
	require.NoError(t, err)
}

func errOf[T any](_ T, err error) error { return err }

// TestNoFiles: opening what is no regular file is an error at once.
func TestNoFiles(t *testing.T) {
	_, theirs := host(t)
	paths := map[string]string{}
	for _, kind := range []string{"fifo", "socket", "device"} {
		paths[kind] = filepath.Join(theirs, kind)
	}
	l, err := net.Listen("unix", paths["socket"])
	must(t, err, syscall.Mkfifo(paths["fifo"], 0o600), syscall.Mknod(paths["device"], syscall.S_IFCHR|0o600, 1<<8|3))
	defer l.Close()
	for _, path := range paths {
		refused(t, path)
	}
	require.Error(t, Walk(theirs, func(*os.File, fs.FileInfo) error { return nil }), "walked")
	must(t, RemoveAll(theirs))
}

// TestHardLinks: a second name for root's file, in another user's folder.
func TestHardLinks(t *testing.T) {
	root, theirs := host(t)
	path := filepath.Join(theirs, "db")
	must(t, os.Link(filepath.Join(root, "ours", "secret"), path))
	refused(t, path)
	own := filepath.Join(theirs, "own")
	put(t, own)
	must(t, os.Lchown(own, other, other), os.Link(own, own+"2"))
	_, err := ReadFile(own, 10)
	require.NoError(t, err, "the folder's owner's file with two names")
	put(t, filepath.Join(root, "ours", "a"))
	must(t, os.Link(filepath.Join(root, "ours", "a"), filepath.Join(root, "ours", "b")))
	_, err = ReadFile(filepath.Join(root, "ours", "b"), 10)
	require.NoError(t, err, "in a folder of root's")
	must(t, os.Chmod(filepath.Join(root, "ours"), 0o777|fs.ModeSticky))
	refused(t, filepath.Join(root, "ours", "b"))
	put(t, filepath.Join(root, "ours", "c"))
	_, err = ReadFile(filepath.Join(root, "ours", "c"), 10)
	require.NoError(t, err, "root's file with one name in a folder like /tmp")
}

// TestHardLinkRemoved: nor is it opened where its second name goes while it is.
func TestHardLinkRemoved(t *testing.T) {
	root, theirs := host(t)
	secret, path := filepath.Join(root, "ours", "secret"), filepath.Join(theirs, "db")
	end, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_, _ = os.Link(secret, path), os.Remove(path)
			}
		}
	}()
	for range 20_000 {
		if data, err := ReadFile(path, 10); err == nil {
			t.Errorf("%q was read", data)
			break
		}
	}
	close(end)
	<-ended
}

// TestStill: a name that was removed or moved is gone, also where another file has it now.
func TestStill(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows it")
	}
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "db (deleted)"), filepath.Join(t.TempDir(), "db (deleted)")
	parent, base, err := locate(path, false)
	require.NoError(t, err)
	defer parent.Close()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	is := func(want bool) {
		t.Helper()
		still, err := parent.still(int(f.Fd()), base)
		require.NoError(t, err)
		require.Equal(t, want, still)
	}
	is(true)
	require.NoError(t, os.Rename(path, moved))
	is(false)
	require.NoError(t, os.Remove(moved))
	is(false)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	is(false)
}

func TestPrivate(t *testing.T) {
	root, theirs := host(t)
	path := filepath.Join(theirs, "staging")
	d, err := Private(path)
	must(t, err)
	lock, gone, err := d.Lock()
	if must(t, err); gone {
		t.Fatal("gone")
	}
	// Whatever becomes of its name, it is the same folder.
	must(t, os.Rename(path, path+".away"), os.Mkdir(path, 0o777), os.Lchown(path, other, other))
	f, err := Create(filepath.Join(d.Path(), "db"))
	must(t, err, f.Close())
	_, err = os.Stat(filepath.Join(path+".away", "db"))
	require.NoError(t, err)
	_, err = Private(path)
	require.Error(t, err, "another user's folder was accepted")
	must(t, os.Remove(path), os.Rename(path+".away", path))
	again, err := Private(path)
	must(t, err)
	_, _, err = again.Lock()
	require.ErrorIs(t, err, ErrLocked)
	must(t, lock.Close())
	if lock, gone, err = again.Lock(); err != nil || gone {
		t.Errorf("the lock was not given up: %v", err)
	}
	must(t, lock.Close(), again.Empty(LockName))
	if names, err := again.Names(); err != nil || !slices.Equal(names, []string{LockName}) {
		t.Errorf("%v %v", names, err)
	}
	must(t, os.RemoveAll(path))
	if _, gone, err := again.Lock(); err != nil || !gone {
		t.Errorf("the lock of a folder that was removed: %v", err)
	}
	must(t, again.Close(), d.Close())
	// A folder of root's that the other user gave that name.
	must(t, os.Mkdir(path, 0o700))
	put(t, filepath.Join(path, "backup"))
	_, err = Private(path)
	require.Error(t, err, "a folder of root's with something in it was accepted")
	must(t, os.RemoveAll(path), os.Mkdir(path, 0o700), os.Chmod(path, 0o777))
	_, err = Private(path)
	require.Error(t, err, "a folder that others may write to was accepted")
	if d, err := OpenDir(filepath.Join(root, "ours")); err != nil || d.Path() != filepath.Join(root, "ours") || !strings.HasPrefix(d.Pinned(), "/proc/") {
		t.Errorf("%v %v", d, err)
	}
}

// TestWalkGoesUp: children come before the folder that they are in.
func TestWalkGoesUp(t *testing.T) {
	root, _ := host(t)
	must(t, MkdirAll(filepath.Join(root, "a", "b", "c")), MkdirAll(filepath.Join(root, "a", "b")))
	put(t, filepath.Join(root, "a", "b", "file"))
	var seen []string
	must(t, Walk(filepath.Join(root, "a"), func(f *os.File, _ fs.FileInfo) error {
		seen = append(seen, filepath.Base(f.Name()))
		return nil
	}))
	if want := []string{"c", "file", "b", "a"}; !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path)
	_, err := ReadFile(path, 0)
	require.Error(t, err, "a file that is too long was read")
	const most = 64 << 20
	must(t, os.Truncate(path, 1<<40)) // sparse, and nothing of it is read
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = ReadFile(path, most)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "more than")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most), "memory for a file that is too long")
}
