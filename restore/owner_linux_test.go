package restore

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Under k3s and RKE2 the data directory belongs to etcd's user, with a mode and an SELinux
// label of its own. What is restored over it has all three, down to the last file. The label
// is only an attribute here: it can be set where SELinux does not run, by root.
func TestRestore_OwnerModeAndLabel_Kept(t *testing.T) {
	const label = "system_u:object_r:container_var_lib_t:s0\x00"
	for _, name := range []string{"k3s", "rke2"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "rancher", name, "server", "db", "etcd")
			old := filepath.Join(dir, "member")
			for _, path := range []string{filepath.Join(old, "wal"), filepath.Join(old, "snap")} {
				require.NoError(t, os.MkdirAll(path, 0o700))
			}
			require.NoError(t, os.WriteFile(filepath.Join(old, "wal", "0.wal"), nil, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(old, "snap", "db"), nil, 0o640))
			owner := Owner{os.Getuid(), os.Getgid()}
			if owner.UID == 0 {
				owner = Owner{4242, 4243}
			}
			require.NoError(t, os.Chmod(old, 0o750))
			for _, path := range []string{old, filepath.Join(old, "snap", "db"), dir} {
				require.NoError(t, os.Chown(path, owner.UID, owner.GID))
				if err := unix.Setxattr(path, selinuxName, []byte(label), 0); err != nil {
					t.Skipf("a label cannot be set here: %v", err)
				}
			}
			req := three(open(t, makeDB(t, dbOptions{keys: 5})), "")
			req.InitialCluster, req.DataDir, req.SetAside = "m1=http://127.0.0.1:12380", dir, true
			execute(t, req, ExecOptions{})
			files := 0
			require.NoError(t, filepath.WalkDir(old, func(path string, d fs.DirEntry, err error) error {
				require.NoError(t, err)
				info, err := d.Info()
				require.NoError(t, err)
				mode := fs.FileMode(0o640)
				if d.IsDir() {
					mode = 0o750
				} else {
					files++
				}
				f, err := os.Open(path)
				require.NoError(t, err)
				defer f.Close()
				has, err := labelOf(f)
				if err != nil || string(has) != label || *ownerOf(info) != owner || info.Mode().Perm() != mode {
					t.Errorf("%s: owner %v, mode %v, label %q, %v", path, *ownerOf(info), info.Mode(), has, err)
				}
				return nil
			}))
			require.Greater(t, files, 2)
		})
	}
}
