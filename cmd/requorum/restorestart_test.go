package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/safedir"
)

// Root starts nothing in a directory of another user, who could put links there: not in
// one that is there, nor in one that is to be made in such a folder. So does store.
func TestStartInAnothersDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("REQUORUM_CI") == "1" {
			t.Fatal("another user's folder takes root")
		}
		t.Skip("another user's folder takes root")
	}
	ours, theirs := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chown(theirs, 65534, 65534))
	_, err := (&storeOptions{member: store.MemberConfig{DataDir: theirs}}).start(t.Context())
	require.ErrorIs(t, err, safedir.ErrOthers)
	o := &startOptions{start: true, clientURLs: []string{"m1=https://127.0.0.1:0"}}
	for dirs, refused := range map[[2]string]bool{
		{ours, ""}: false, {filepath.Join(ours, "new"), ""}: false, {ours, filepath.Join(ours, "wal")}: false,
		{theirs, ""}: true, {filepath.Join(theirs, "new"), ""}: true, {ours, theirs}: true,
	} {
		p := &restore.Plan{Members: []restore.Member{{Name: "m1", PeerURLs: []string{"https://127.0.0.1:0"}, DataDir: dirs[0], WALDir: dirs[1]}}}
		if err := o.check(t.Context(), p, ""); refused {
			require.ErrorIs(t, err, safedir.ErrOthers, dirs)
		} else {
			require.NoError(t, err, dirs)
		}
	}
}
