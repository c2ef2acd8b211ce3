package job

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type tarMember struct {
	kind          byte
	name, content string
}

func tarOf(t *testing.T, members ...tarMember) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		h := &tar.Header{Typeflag: m.kind, Name: m.name, Mode: 0o777}
		if m.kind == tar.TypeReg {
			h.Size = int64(len(m.content))
		} else {
			h.Linkname = m.content
		}
		require.NoError(t, w.WriteHeader(h))
		if m.kind == tar.TypeReg {
			_, err := w.Write([]byte(m.content))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// filesBelow are the files and links, by path.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			all[name], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = string(data)
		return err
	})
	require.NoError(t, err)
	return all
}

// Promise 3 of the project: nothing outside of the folder, and nothing that is
// there, is touched, whatever a stream holds; and nothing is left of what failed.
func TestPromise3UnpackIsSafe(t *testing.T) {
	good := tarMember{tar.TypeReg, "good", "good"}
	for _, tt := range []struct {
		name    string
		members []tarMember
		want    string
	}{
		{"a name with ..", []tarMember{good, {tar.TypeReg, "../evil", "x"}}, "would not lie within"},
		{"a name with .. inside", []tarMember{good, {tar.TypeReg, "a/../../evil", "x"}}, "would not lie within"},
		{"an absolute name", []tarMember{good, {tar.TypeReg, "/tmp/evil", "x"}}, "would not lie within"},
		{"the folder itself", []tarMember{good, {tar.TypeDir, "./", ""}}, "would not lie within"},
		{"a link out", []tarMember{good, {tar.TypeSymlink, "out", "../outside"}}, "leads out of"},
		{"an absolute link", []tarMember{good, {tar.TypeSymlink, "out", "/etc"}}, "leads out of"},
		{"a link that goes up too far", []tarMember{good, {tar.TypeSymlink, "a/out", "../../outside"}}, "leads out of"},
		{"a file through a link", []tarMember{{tar.TypeSymlink, "a", "b"}, {tar.TypeReg, "a/x", "x"}, good}, "nothing is overwritten"},
		{"a hard link", []tarMember{good, {tar.TypeLink, "hard", "/etc/passwd"}}, "kind"},
		{"a device", []tarMember{good, {tar.TypeChar, "null", ""}}, "kind"},
		{"a pipe", []tarMember{good, {tar.TypeFifo, "pipe", ""}}, "kind"},
		{"one name twice", []tarMember{good, {tar.TypeReg, "good", "other"}}, "nothing is overwritten"},
		{"a file that is there", []tarMember{good, {tar.TypeReg, "mine", "x"}}, "nothing is overwritten"},
		{"a file through a link that is there", []tarMember{good, {tar.TypeReg, "away/x", "x"}}, "no folder"},
		{"a link where a file is", []tarMember{good, {tar.TypeSymlink, "mine", "good"}}, "nothing is overwritten"},
		{"a folder where a file is", []tarMember{good, {tar.TypeDir, "mine/", ""}}, "no folder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := filepath.Join(top, "dir"), filepath.Join(top, "outside")
			for _, d := range []string{dir, outside} {
				require.NoError(t, os.Mkdir(d, 0o700))
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("mine"), 0o600))
			require.NoError(t, os.Symlink("../outside", filepath.Join(dir, "away")))
			_, err := unpack(bytes.NewReader(tarOf(t, tt.members...)), dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: want %q in it", err, tt.want)
			}
			got := filesBelow(t, top)
			if len(got) != 2 || got["dir/mine"] != "mine" || got["dir/away"] != "../outside" {
				t.Errorf("afterwards there are %v", got)
			}
		})
	}
}

func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	data := tarOf(t, tarMember{tar.TypeSymlink, "first", "a/b/deep"}, tarMember{tar.TypeDir, "a/", ""}, tarMember{tar.TypeReg, "a/b/deep", "deep"},
		tarMember{tar.TypeSymlink, "a/up", "../top"}, tarMember{tar.TypeReg, "top", "top"})
	content, err := unpack(bytes.NewReader(data), dir)
	if err != nil || content.Files != 2 || content.Links != 2 || content.Bytes != 7 {
		t.Fatalf("%+v, %v", content, err)
	}
	got := filesBelow(t, dir)
	if len(got) != 4 || got["a/b/deep"] != "deep" || got["a/up"] != "../top" || got["first"] != "a/b/deep" {
		t.Errorf("got %v", got)
	}
	for name, mode := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/deep": 0o600, "top": 0o600, ".": 0o700} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	// A stream that breaks off leaves nothing, not even the folder that was made.
	broken := filepath.Join(t.TempDir(), "broken")
	_, err = unpack(bytes.NewReader(data[:len(data)-1536]), broken)
	require.Error(t, err, "a stream that breaks off was unpacked")
	if _, err := os.Lstat(broken); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}
