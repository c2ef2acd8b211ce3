package storetest

import (
	"net"
	"testing"
	"time"
)

// Isolate cuts a member off from its peers, in both directions, and leaves its
// clients connected. It returns when the member has noticed: it sees no leader,
// or a leader gave up.
func (c *Cluster) Isolate(t testing.TB, i int) {
	t.Helper()
	c.CutOff(t, i)
	client := c.Client(t, i)
	deadline := time.Now().Add(20 * time.Second)
	for {
		resp, err := client.Status(t.Context(), c.members[i].ClientURL)
		if err == nil && resp.Leader == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("member %s is isolated and still sees a leader: %v, %v", c.members[i].Name, resp, err)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// CutOff is Isolate, and returns at once: a leader believes for up to an
// election timeout that it still leads, and writes into its log what nobody will
// ever acknowledge.
func (c *Cluster) CutOff(t testing.TB, i int) {
	t.Helper()
	if c.members[i].proxy == nil {
		t.Fatal("members that were started from data directories cannot be isolated: nothing stands between them")
	}
	c.mu.Lock()
	c.isolated[i] = true
	c.mu.Unlock()
	for to, m := range c.members {
		m.proxy.cut(func(from int) bool { return to == i || from == i })
	}
}

// Rejoin ends an Isolate. See WaitReady.
func (c *Cluster) Rejoin(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.isolated, i)
}

func (c *Cluster) isIsolated(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isolated[i]
}

// admit decides on a new connection to a member's peer port.
func (c *Cluster) admit(conn net.Conn, to int) (from int, ok bool) {
	c.mu.Lock()
	pids := make([]int, len(c.members))
	for i, m := range c.members {
		if m.process != nil {
			pids[i] = m.process.pid()
		}
	}
	c.mu.Unlock()
	from = owner(conn, pids)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isolated[to] || c.isolated[from] {
		return from, false
	}
	// Who cannot be told apart may be the isolated one.
	return from, from >= 0 || len(c.isolated) == 0
}
