package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/safedir"
)

// TestFilesOfOthers: neither identities nor recipients are read from files that other
// users could have written.
func TestFilesOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o622)))
	_, err := Preflight(t.Context(), Request{Config: &Config{RecipientsFiles: []string{path}}})
	require.ErrorIs(t, err, safedir.ErrOthers, "recipients-files, which a dry run refuses too")
	d := &coordinator{cfg: &Config{IdentityFiles: []string{path}}}
	_, err = d.identities()
	require.ErrorIs(t, err, safedir.ErrOthers, "identity-files")
}
