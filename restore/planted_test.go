package restore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// etcdUser owns the members' directories of these tests, and is nobody else here.
const etcdUser = 2379

// planted is a host whose member's directories belong to etcdUser, and a folder
// of root's that nobody but root may change.
type planted struct {
	req                  Request
	data, wal, canary    string
	member, staging, log string
}

func plantedHost(t *testing.T) *planted {
	t.Helper()
	storetest.NeedRoot(t)
	dir := t.TempDir()
	l := layout{existing: true, wal: true}
	p := &planted{canary: filepath.Join(dir, "canary"), data: filepath.Join(dir, "data", "m1"), wal: filepath.Join(dir, "wal", "m1")}
	p.req = l.prepare(t, dir, makeDB(t, dbOptions{keys: 5}))
	p.member, p.staging, p.log = filepath.Join(p.data, "member"), filepath.Join(p.data, stagingName), filepath.Join(p.wal, blockerName+".tmp")
	write(t, filepath.Join(p.canary, "folder", "secret"), "root's")
	write(t, filepath.Join(p.canary, "secret"), "root's")
	p.chown(t, p.data, p.wal)
	return p
}

func (p *planted) chown(t *testing.T, roots ...string) {
	t.Helper()
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, etcdUser, etcdUser))
		})
		require.NoError(t, err)
	}
}

// kept is what root's folder holds, with all that a change would show in.
func (p *planted) kept(t *testing.T) string {
	t.Helper()
	return census(t, p.canary)
}

func census(t testing.TB, root string) (out string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode().IsRegular() {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		st := info.Sys().(*syscall.Stat_t)
		out += fmt.Sprintf("%s %d %s %d:%d %s %q\n", path, st.Ino, info.Mode(), st.Uid, st.Gid, info.ModTime(), data)
		return nil
	})
	require.NoError(t, err)
	return out
}

// TestPlantedStagingLink: the folder that a restore builds in, planted as a link
// to a folder of root's, is not swept.
func TestPlantedStagingLink(t *testing.T) {
	p := plantedHost(t)
	before := p.kept(t)
	require.NoError(t, errors.Join(os.Symlink(p.canary, p.staging), os.Lchown(p.staging, etcdUser, etcdUser)))
	_, err := Execute(t.Context(), plan(t, p.req), p.req.Image, ExecOptions{Only: "m1"})
	require.Error(t, err, "it was restored by way of the link")
	if got := p.kept(t); got != before {
		t.Errorf("%s was\n%s and is\n%s", p.canary, before, got)
	}
}

// TestPlantedStagingFolder: what is in a folder that etcd's user made in time, and
// swapped while the image was read, does not get its mode or owner from root.
func TestPlantedStagingFolder(t *testing.T) {
	p := plantedHost(t)
	require.NoError(t, os.Chmod(filepath.Join(p.member, "snap", "db"), 0o666))
	mkdir(t, p.staging)
	p.chown(t, p.data)
	before := p.kept(t)
	swapped := false
	image := fakeImage{Image: p.req.Image, reader: func(r io.ReadCloser) io.ReadCloser {
		return struct {
			io.Reader
			io.Closer
		}{readFunc(func(b []byte) (int, error) {
			n, err := r.Read(b)
			if err == io.EOF && !swapped {
				swapped = true
				other := filepath.Join(p.data, "other")
				mkdir(t, filepath.Join(other, "snap"))
				db, readErr := os.ReadFile(p.req.Image.Name())
				if err := errors.Join(readErr, os.WriteFile(filepath.Join(other, "snap", "db"), db[:p.req.Image.Size()], 0o600),
					os.Symlink(filepath.Join(p.canary, "secret"), filepath.Join(other, "planted")),
					os.Rename(filepath.Join(p.staging, "member"), filepath.Join(p.data, "built")), os.Rename(other, filepath.Join(p.staging, "member"))); err != nil {
					t.Error(err)
				}
			}
			return n, err
		}), r}
	}}
	req := p.req
	req.Image = image
	_, err := Execute(t.Context(), plan(t, req), image, ExecOptions{Only: "m1"})
	require.Error(t, err, "it was built in a folder of another user")
	if got := p.kept(t); got != before {
		t.Errorf("%s was\n%s and is\n%s", p.canary, before, got)
	}
}

// TestPlantedBlockerLink: a link in the WAL directory, of the name that the blocker
// is written under first, is not written through. The restore goes on.
func TestPlantedBlockerLink(t *testing.T) {
	p := plantedHost(t)
	before := p.kept(t)
	require.NoError(t, errors.Join(os.Symlink(filepath.Join(p.canary, "secret"), p.log), os.Lchown(p.log, etcdUser, etcdUser)))
	_, err := Execute(t.Context(), plan(t, p.req), p.req.Image, ExecOptions{Only: "m1"})
	require.NoError(t, err)
	if got := p.kept(t); got != before {
		t.Errorf("%s was\n%s and is\n%s", p.canary, before, got)
	}
}

// TestRenamedIntoPlace: a folder of root's in a directory of etcd's user, which that
// user cannot empty but rename, is not taken for one of a restore's own.
func TestRenamedIntoPlace(t *testing.T) {
	for _, name := range []string{"data/m1/" + stagingName, "data/m1/" + memberAsidePrefix + "20261121T030000Z", "data/.m1.requorum"} {
		p := plantedHost(t)
		root := filepath.Dir(filepath.Dir(p.data))
		backup := filepath.Join(root, name)
		write(t, filepath.Join(backup, "folder", "secret"), "root's")
		before := census(t, filepath.Join(backup, "folder"))
		_, err := Execute(t.Context(), plan(t, p.req), p.req.Image, ExecOptions{Only: "m1"})
		if got := census(t, filepath.Join(backup, "folder")); got != before {
			t.Errorf("%s (%v): it was\n%s and is\n%s", name, err, before, got)
		}
	}
}

// TestDataDirectoryBehindALink: a link that root made in a folder of root's is
// followed; one that etcd's user made is not.
func TestDataDirectoryBehindALink(t *testing.T) {
	for _, owner := range []int{0, etcdUser} {
		p := plantedHost(t)
		host := filepath.Join(filepath.Dir(filepath.Dir(p.data)), "host")
		mkdir(t, host)
		require.NoError(t, errors.Join(os.Symlink(p.data, filepath.Join(host, "m1")), os.Lchown(host, owner, owner)))
		req := p.req
		req.DataDir, req.WALDir = filepath.Join(host, "{name}"), p.wal
		_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{Only: "m1"})
		if (err == nil) != (owner == 0) {
			t.Errorf("a link in a folder of user %d: %v", owner, err)
		}
	}
}
