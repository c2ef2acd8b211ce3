package storetest

import (
	"os/exec"
	"testing"
)

// RestartAs starts a member that was ended with another version's etcd, which
// it keeps; see WaitReady. This is how a rolling upgrade goes.
func (c *Cluster) RestartAs(t testing.TB, i int, version string) {
	t.Helper()
	c.members[i].binary = Binary(t, version, "etcd")
	c.Restart(t, i)
}

// RestartWith starts a member that was ended with arguments that count for this
// run alone, such as --force-new-cluster.
func (c *Cluster) RestartWith(t testing.TB, i int, args ...string) {
	t.Helper()
	if c.members[i].process.running() {
		t.Fatalf("member %s still runs", c.members[i].Name)
	}
	if err := c.launch(i, args...); err != nil {
		t.Fatal(err)
	}
}

// CopyData copies a member's data directory as it lies there: of a stopped
// member a backup as people make them, of a running one what a disk snapshot
// might hold.
func (c *Cluster) CopyData(t testing.TB, i int, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", c.members[i].DataDir, to).CombinedOutput(); err != nil {
		t.Fatalf("copying the data directory of %s: %v\n%s", c.members[i].Name, err, out)
	}
}
