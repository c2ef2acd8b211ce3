package restore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/store/storetest"
)

// TestCheckFileIdle: the database of a running member is noticed, also through a
// link, and nothing in its directory changes.
func TestCheckFileIdle(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	member := filepath.Join(c.Member(0).DataDir, "member")
	db := filepath.Join(member, "snap", "db")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(db, link))
	list := func() string {
		return names(t, member) + " | " + names(t, filepath.Join(member, "snap")) + " | " + names(t, filepath.Join(member, "wal"))
	}
	before := list()
	for _, path := range []string{db, link} {
		if err := CheckFileIdle(path); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "endpoint") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want ErrInUse", path, err)
		}
	}
	if now := list(); now != before {
		t.Errorf("the directory held %s, now %s", before, now)
	}
	c.WaitReady(t)
	c.StopAll()
	stopped := tree(t, member)
	for _, path := range []string{db, link} {
		require.NoError(t, CheckFileIdle(path), "%s of a stopped member", path)
	}
	sameTree(t, "stopped", tree(t, member), stopped)
}

// TestCheckFileIdleByTheLog: a member that has its log open, and its database
// not yet, is running as well.
func TestCheckFileIdleByTheLog(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "member", "snap", "db")
	segment := filepath.Join(dir, "member", "wal", firstSegment)
	write(t, db, "x")
	write(t, segment, "x")
	require.NoError(t, CheckFileIdle(db), "idle")
	f, err := os.OpenFile(segment, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(db, link))
	for _, path := range []string{db, link} {
		require.ErrorIs(t, CheckFileIdle(path), ErrInUse, path)
	}
	// A plain file, whatever lies around it, and what is no file.
	plain := filepath.Join(dir, "member", "backup.db")
	write(t, plain, "x")
	require.NoError(t, errors.Join(CheckFileIdle(plain), CheckFileIdle(dir)), "idle")
	require.ErrorIs(t, CheckFileIdle(filepath.Join(dir, "missing")), os.ErrNotExist, "missing")
}

// TestLockThatLingers: the lock of an etcd that has ended is waited for while somebody
// still reads its entry in /proc; one that stays means that an etcd runs.
func TestLockThatLingers(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "member", "snap", "db")
	write(t, db, "x")
	write(t, filepath.Join(dir, "member", "wal", firstSegment), "x")
	f, err := os.OpenFile(db, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	require.ErrorIs(t, CheckMemberIdle(dir, ""), ErrInUse)
	ended := time.AfterFunc(lingers/4, func() { unix.Flock(int(f.Fd()), unix.LOCK_UN) })
	require.NoError(t, CheckMemberIdle(dir, ""))
	require.False(t, ended.Stop(), "the lock was held")
}
