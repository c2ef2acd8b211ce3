package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
)

// Root starts nothing in a directory that another user can change, or is to have: such a
// user could put links there.
func TestStartInAnothersDirectory(t *testing.T) {
	storetest.NeedRoot(t)
	ours, theirs, below, everybodys := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	member := filepath.Join(below, "member")
	require.NoError(t, errors.Join(os.Chown(theirs, 65534, 65534), os.Mkdir(member, 0o700), os.Chown(member, 65534, 65534), os.Chmod(everybodys, 0o777|os.ModeSticky)))
	o := &startOptions{start: true, clientURLs: []string{"m1=https://127.0.0.1:0"}}
	check := func(dir, wal string, owner *restore.Owner) error {
		p := &restore.Plan{Members: []restore.Member{{Name: "m1", PeerURLs: []string{"https://127.0.0.1:0"}, DataDir: dir, WALDir: wal}}}
		return o.check(t.Context(), p, owner, "")
	}
	for _, dirs := range [][2]string{{ours}, {filepath.Join(ours, "new")}, {ours, filepath.Join(ours, "wal")}, {filepath.Join(everybodys, "new")}} {
		require.NoError(t, check(dirs[0], dirs[1], nil), dirs)
	}
	for _, dirs := range [][2]string{{theirs}, {filepath.Join(theirs, "new")}, {ours, theirs}, {below}, {everybodys}} {
		require.ErrorIs(t, check(dirs[0], dirs[1], nil), safedir.ErrOthers, dirs)
	}
	require.NoError(t, check(ours, "", &restore.Owner{}))
	require.ErrorContains(t, check(ours, "", &restore.Owner{UID: 65534, GID: 65534}), "belong to user 65534")
}
