package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Root's password is lost, and authentication was turned on after the member's database was
// written: restore --auth off replays the log, and the cluster answers without a password.
// Users and roles are kept.
func TestRestore_AuthOff_NeedsNoPassword(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	c := storetest.Start(t, storetest.Options{Version: "3.6", ExtraArgs: []string{"--backend-batch-interval=1h", "--backend-batch-limit=1000000"}})
	filled := c.Fill(t, storetest.Load{Keys: 50, Users: 2})
	c.KillAll()
	dir := c.Member(0).DataDir
	initial := storetest.InitialCluster(t, "m1")
	args := []string{"restore", "--from-data-dir", dir, "--initial-cluster", initial, "--data-dir", u.Path("new")}
	e := u.Must(t, exitOK, append(args, "--auth", "off", "--dry-run")...)
	require.Contains(t, e.Stdout, "authentication will be off (--auth off)")
	e = u.Must(t, exitOK, append(args, "--auth", "off", "--plan", u.Path("plan.json"))...)
	require.Contains(t, e.Stdout, "authentication will be off (--auth off)")
	require.Contains(t, e.Stdout, "raft index")
	e = u.Must(t, exitUsage, "restore", "--plan", u.Path("plan.json"), "--auth", "keep")
	require.Contains(t, e.Stderr, "--auth: the plan in")
	restored := storetest.Start(t, storetest.Options{
		Version: "3.6", DataDirs: map[string]string{"m1": u.Path("new")}, InitialCluster: initial, ExtraArgs: []string{"--initial-cluster-state=existing"},
	})
	require.NoError(t, filled.Compare(t.Context(), restored.Client(t)), "keys, users and roles, without a password")
	_, err := os.Stat(filepath.Join(dir, "member"))
	require.NoError(t, err)
}
