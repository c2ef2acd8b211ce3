package job

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// TestPackPlanted: a backup that root makes holds no file of root's that the owner of the
// directory has led it to.
func TestPackPlanted(t *testing.T) {
	storetest.NeedRoot(t)
	for _, c := range []struct {
		name  string
		plant func(secret, theirs string) error
		path  string
		want  string
	}{
		{"a link to a file", func(secret, theirs string) error { return os.Symlink(secret, filepath.Join(theirs, "key")) }, "", "symbolic link"},
		{"a link to a folder on the way", func(secret, theirs string) error {
			return os.Symlink(filepath.Dir(secret), filepath.Join(theirs, "pki"))
		}, "pki", "symbolic link"},
		{"a link as the file itself", func(secret, theirs string) error { return os.Symlink(secret, filepath.Join(theirs, "key")) }, "key", "symbolic link"},
		{"a second name", func(secret, theirs string) error { return os.Link(secret, filepath.Join(theirs, "key")) }, "", "hard links"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			secret, theirs := filepath.Join(root, "ours", "secret"), filepath.Join(root, "theirs")
			writeFile(t, secret, "root's")
			writeFile(t, filepath.Join(theirs, "file"), "theirs")
			require.NoError(t, errors.Join(c.plant(secret, theirs), os.Lchown(theirs, 2379, 2379)))
			if _, err := pack(t, filepath.Join(theirs, c.path)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
