package storetest

import (
	"syscall"
	"testing"
)

// Freeze stops a member's process where it stands, until Thaw: it keeps its
// connections and answers nobody.
func (c *Cluster) Freeze(t testing.TB, i int) {
	t.Helper()
	c.signal(t, i, syscall.SIGSTOP)
	t.Cleanup(func() {
		_ = c.members[i].process.cmd.Process.Signal(syscall.SIGCONT) // so that it can be stopped; it may have ended
	})
}

// Thaw lets a frozen member go on.
func (c *Cluster) Thaw(t testing.TB, i int) {
	t.Helper()
	c.signal(t, i, syscall.SIGCONT)
}

func (c *Cluster) signal(t testing.TB, i int, s syscall.Signal) {
	t.Helper()
	if err := c.members[i].process.cmd.Process.Signal(s); err != nil {
		t.Fatalf("member %s: %s: %v", c.members[i].Name, s, err)
	}
}
