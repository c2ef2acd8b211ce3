package job

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o640))
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, path))
}

// newPKI is a folder as kubeadm and kubelet make them, and something outside that
// a link leads to.
func newPKI(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "pki")
	writeFile(t, filepath.Join(dir, "ca.crt"), "the CA")
	writeFile(t, filepath.Join(dir, "ca.key"), "its key")
	writeFile(t, filepath.Join(dir, "etcd", "server.crt"), "a server's")
	writeFile(t, filepath.Join(dir, "empty.conf"), "")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "none"), 0o700))
	writeFile(t, filepath.Join(dir, "..2026", "token"), "secret")
	symlink(t, "..2026", filepath.Join(dir, "..data"))
	symlink(t, "..data/token", filepath.Join(dir, "token"))
	writeFile(t, filepath.Join(dir, "..", "outside", "current.pem"), "renewed")
	symlink(t, "../outside/current.pem", filepath.Join(dir, "current.pem"))
	symlink(t, filepath.Join(dir, "ca.crt"), filepath.Join(dir, "absolute.crt"))
	return dir
}

func pack(t *testing.T, paths ...string) ([]byte, error) {
	t.Helper()
	return PackAttachments(t.Context(), paths)
}

// tarEntries are what a tar stream holds: by name, what is in it or where it leads.
func tarEntries(t *testing.T, data []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		content, err := io.ReadAll(in)
		require.NoError(t, err)
		all[h.Name] = string(content)
		if h.Typeflag == tar.TypeSymlink {
			all[h.Name] = "-> " + h.Linkname
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s names an owner", h.Name)
		}
	}
}

func TestPack(t *testing.T) {
	dir := newPKI(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "agent.sock"))
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	file := filepath.Join(dir, "..", "key")
	symlink(t, "pki/ca.key", file)
	data, err := pack(t, dir, file)
	require.NoError(t, err)
	want := map[string]string{strings.TrimPrefix(file, "/"): "its key"}
	for name, content := range map[string]string{
		"/": "", "/ca.crt": "the CA", "/ca.key": "its key", "/etcd/": "", "/etcd/server.crt": "a server's", "/empty.conf": "", "/none/": "",
		"/..2026/": "", "/..2026/token": "secret", "/..data": "-> ..2026", "/token": "-> ..data/token",
		"/current.pem": "renewed", "/absolute.crt": "the CA",
	} {
		want[strings.TrimPrefix(dir, "/")+name] = content
	}
	require.Equal(t, want, tarEntries(t, data))
}

// TestPack_ListedByTar proves that the system's tar lists and extracts what was packed.
func TestPack_ListedByTar(t *testing.T) {
	dir := newPKI(t)
	data, err := pack(t, dir)
	require.NoError(t, err)
	to := t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", to)
	tar.Stdin = bytes.NewReader(data)
	out, err := tar.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range map[string]string{"ca.key": "its key", "token": "secret", "current.pem": "renewed"} {
		got, err := os.ReadFile(filepath.Join(to, dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

// What cannot be kept whole is an error that names the file, and no content.
func TestPackRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  []string
	}{
		{"nothing there", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
		}, []string{"/pki", "no such file"}},
		{"no file in it", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "x"), 0o700))
		}, []string{"there is no file in", "/pki"}},
		{"a link to nothing", func(t *testing.T, dir string) { symlink(t, "gone", filepath.Join(dir, "dangling")) }, []string{"/pki/dangling: it leads to gone"}},
		{"a link to a directory outside", func(t *testing.T, dir string) { symlink(t, "../outside", filepath.Join(dir, "folder")) }, []string{"/pki/folder: it leads to ../outside: ", "/outside is no regular file"}},
		{"too large", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "large"), "")
			require.NoError(t, os.Truncate(filepath.Join(dir, "large"), snapshot.AttachmentsLimit))
		}, []string{"/pki/large", "33554432", "list less"}},
		{"not readable", func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "ca.key"), 0))
		}, []string{"/pki/ca.key", "permission denied"}},
		{"a directory that is not readable", func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "etcd"), 0o700))
		}, []string{"/pki/etcd", "permission denied"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newPKI(t)
			tt.spoil(t, dir)
			if os.Getuid() != 0 && strings.Contains(tt.name, "directory that is not readable") {
				t.Skip("a folder of 0700 is only refused to another user: needs root to become one")
			}
			try := func() {
				_, err := pack(t, dir)
				require.Error(t, err, "it was packed")
				for _, w := range append(tt.want, "") {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%v: want %q in it", err, w)
					}
				}
				if strings.Contains(err.Error(), "its key") {
					t.Errorf("the error shows content: %v", err)
				}
			}
			if strings.Contains(tt.name, "readable") {
				opened(t, dir)
				sinktest.AsNobody(t, try)
				return
			}
			try()
		})
	}
}

// opened lets everybody reach what is above a folder, and read in it what does not
// say otherwise.
func opened(t *testing.T, dir string) {
	t.Helper()
	for above := filepath.Dir(dir); above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
		require.NoError(t, os.Chmod(above, 0o755))
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != 0 {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0 {
			err = os.Chmod(path, 0o644)
		}
		return err
	})
	require.NoError(t, err)
}
