package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// A stopped member's directory that is named one folder too deep, whose log is on another
// mount that was forgotten, or one of whose meta pages is damaged: each command that takes
// it says so, and what to type.
func TestMemberDir_Mistaken_IsNamed(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	c.Fill(t, storetest.Load{Keys: 50})
	c.StopAll()
	dir, db := c.Member(0).DataDir, filepath.Join(c.Member(0).DataDir, "member", "snap", "db")
	target := []string{"--initial-cluster", "m1=http://127.0.0.1:1", "--data-dir", u.Path("new")}
	commands := func(dir string) map[string][]string {
		return map[string][]string{
			"restore": append([]string{"restore", "--from-data-dir", dir}, target...),
			"verify":  {"verify", "--data-dir", dir},
			"recover": {"recover", "--local", "m1=" + dir, "--data-dir", u.Path("new"), "--dry-run"},
			"agent":   {"agent", "--data-dir", dir, "--repo", u.Path("repo"), "--once"},
		}
	}
	for name, args := range commands(filepath.Join(dir, "member")) {
		e := u.Run(t, args...)
		if want := "member is inside of the data directory: name " + dir + "\n"; e.Code == exitOK || !strings.Contains(e.Stderr, want) {
			t.Errorf("%s: status %d, want %q: %s", name, e.Code, want, e)
		}
	}

	wal := filepath.Join(dir, "member", "wal")
	require.NoError(t, os.Rename(wal, u.Path("elsewhere")))
	for name, advice := range map[string]string{"restore": "--wal-dir-source", "verify": "add --wal-dir", "recover": "member=dir:wal-dir", "agent": "--wal-dir"} {
		if e := u.Run(t, commands(dir)[name]...); e.Code == exitOK || !strings.Contains(e.Stdout+e.Stderr, advice) {
			t.Errorf("%s: status %d, want %q: %s", name, e.Code, advice, e)
		}
	}
	require.NoError(t, os.Rename(u.Path("elsewhere"), wal))

	f, err := os.OpenFile(db, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 80), int64(os.Getpagesize())) // page 1
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for i, args := range [][]string{
		append([]string{"restore", "--from-data-dir", dir, "--dry-run"}, target...),
		append([]string{"restore", "--file", db, "--dry-run"}, target...),
		append([]string{"restore", "--from-data-dir", dir}, target...),
	} {
		code := exitOK
		if args[1] == "--from-data-dir" { // page 1 may have been the newer one, with a higher raft index
			code = exitUnproven
		}
		e := u.Must(t, code, args...)
		if strings.Count(e.Stdout, "one of the database's two meta pages is damaged, and the other one is used: page 1, at byte") != 1 {
			t.Errorf("run %d: the damaged meta page is not named once: %s", i, e)
		}
	}
	e := u.Must(t, exitDamaged, "verify", "--data-dir", dir)
	require.Contains(t, e.Stdout, "meta page")
}
