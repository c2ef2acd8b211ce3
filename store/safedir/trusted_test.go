package safedir

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/store/storetest"
)

const nobody = 65534

func write(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), mode), os.Chmod(path, mode)))
	return path
}

// TestWhoCouldHaveWritten (promises 1, 2 and 4): each way in which another user
// could have written a file is refused with what mends it, and
// ordinary layouts pass: those of Kubernetes' Secrets too.
func TestWhoCouldHaveWritten(t *testing.T) {
	storetest.NeedRoot(t)
	t.Setenv("SUDO_UID", "")
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string) string
		file string // what a refusal says; empty where it passes
	}{
		"of this user":       {func(t *testing.T, dir string) string { return write(t, dir+"/f", 0o600) }, ""},
		"that others read":   {func(t *testing.T, dir string) string { return write(t, dir+"/f", 0o644) }, ""},
		"that a group reads": {func(t *testing.T, dir string) string { return write(t, dir+"/f", 0o640) }, ""},
		"that others write":  {func(t *testing.T, dir string) string { return write(t, dir+"/f", 0o666) }, "chmod go-w"},
		"that a group writes": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/f", 0o660)
			return chown(t, path, 0, nobody)
		}, "chmod go-w"},
		"that root's group writes": {func(t *testing.T, dir string) string { return write(t, dir+"/f", 0o660) }, ""},
		"of another user": {func(t *testing.T, dir string) string {
			return chown(t, write(t, dir+"/f", 0o600), nobody, nobody)
		}, "belongs to user 65534"},
		"in another user's folder": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/sub/f", 0o600)
			chown(t, dir+"/sub", nobody, nobody)
			return path
		}, "on the way to"},
		"in a folder that others write to": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/sub/f", 0o600)
			chmod(t, dir+"/sub", 0o777)
			return path
		}, "chmod go-w"},
		"in a sticky folder": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/sub/f", 0o600)
			chmod(t, dir+"/sub", 0o777|os.ModeSticky)
			return path
		}, ""},
		"through another user's link": {func(t *testing.T, dir string) string {
			write(t, dir+"/f", 0o600)
			return chown(t, link(t, "f", dir+"/link"), nobody, nobody)
		}, "belongs to user 65534"},
		"through a link to what others write": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/open/f", 0o600)
			chmod(t, dir+"/open", 0o777)
			return link(t, path, dir+"/link")
		}, "chmod go-w"},
		"as Kubernetes mounts Secrets": {func(t *testing.T, dir string) string {
			write(t, dir+"/volume/..2026_01_01/key", 0o400)
			link(t, "..2026_01_01", dir+"/volume/..data")
			link(t, "..data/key", dir+"/volume/key")
			chmod(t, dir+"/volume", 0o777|os.ModeSticky)
			return dir + "/volume/key"
		}, ""},
		"by a link and back": {func(t *testing.T, dir string) string {
			write(t, dir+"/safe/f", 0o600)
			write(t, dir+"/open/sub/f", 0o600)
			write(t, dir+"/open/f", 0o666)
			link(t, dir+"/open/sub", dir+"/safe/link")
			return dir + "/safe/link/../f"
		}, "chmod go-w"},
		"that an ACL lets another user write": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/f", 0o600)
			setACL(t, path)
			return path
		}, "chmod go-w"},
		"in a folder that an ACL lets another user write to": {func(t *testing.T, dir string) string {
			path := write(t, dir+"/sub/f", 0o600)
			setACL(t, dir+"/sub")
			return path
		}, "chmod go-w"},
		"links in a circle": {func(t *testing.T, dir string) string { return link(t, "link", dir+"/link") }, "too many levels"},
		"not there":         {func(t *testing.T, dir string) string { return dir + "/f" }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.make(t, t.TempDir())
			says(t, "File", TrustedFile(path), c.file)
		})
	}
}

// TestReadOnly (promise 2): a Secret that is mounted read-only with mode 0644, as
// Kubernetes does by default, passes.
func TestReadOnly(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	path := write(t, dir+"/volume/f", 0o644)
	chmod(t, dir+"/volume", 0o777)
	says(t, "before", TrustedFile(path), "chmod go-w")
	if out, err := exec.Command("mount", "--bind", "-o", "ro", dir+"/volume", dir+"/volume").CombinedOutput(); err != nil {
		if os.Getenv("REQUORUM_CI") == "1" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		require.NoError(t, syscall.Unmount(dir+"/volume", 0))
	})
	says(t, "File", TrustedFile(path), "")
}

// TestSudo: who called sudo may have written what root is asked to read.
func TestSudo(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	path := chown(t, write(t, dir+"/f", 0o600), nobody, nobody)
	t.Setenv("SUDO_UID", "65534")
	says(t, "of the caller", TrustedFile(path), "")
	t.Setenv("SUDO_UID", "1")
	says(t, "of somebody else", TrustedFile(path), "belongs to user 65534")
}

// TestFolder: a socket is not made where others make files, sticky or not.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	chmod(t, dir, 0o700)
	says(t, "own", TrustedFolder(dir), "")
	chmod(t, dir, 0o777|os.ModeSticky)
	says(t, "sticky", TrustedFolder(dir), "can write to")
}

// TestDescriptors: what the caller opened is not looked up by a path.
func TestDescriptors(t *testing.T) {
	for _, path := range []string{"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"} {
		says(t, path, TrustedFile(path), "")
	}
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

func chown(t *testing.T, path string, uid, gid int) string {
	t.Helper()
	require.NoError(t, os.Lchown(path, uid, gid))
	return path
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.Chmod(path, mode))
}

// setACL gives nobody all rights, as setfacl -m u:65534:rwx does.
func setACL(t *testing.T, path string) {
	t.Helper()
	acl := binary.LittleEndian.AppendUint32(nil, 2) // version; then tag, rights, ID of each entry
	for _, e := range []struct {
		tag, rights uint16
		id          uint32
	}{{0x01, 7, math.MaxUint32}, {0x02, 7, nobody}, {0x04, 0, math.MaxUint32}, {0x10, 7, math.MaxUint32}, {0x20, 0, math.MaxUint32}} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.rights)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	err := unix.Setxattr(path, "system.posix_acl_access", acl, 0)
	if errors.Is(err, unix.EOPNOTSUPP) && os.Getenv("REQUORUM_CI") != "1" {
		t.Skip("this file system has no ACLs")
	}
	require.NoError(t, err)
}

func link(t *testing.T, to, path string) string {
	t.Helper()
	require.NoError(t, os.Symlink(to, path))
	return path
}
