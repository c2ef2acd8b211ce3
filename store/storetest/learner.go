package storetest

import (
	"path/filepath"
	"testing"
	"time"
)

// AddLearner adds a learner to the cluster, waits until it has caught up, and
// gives its number.
func (c *Cluster) AddLearner(t testing.TB) int {
	t.Helper()
	client := c.Client(t)
	if err := c.addMember("learner", filepath.Join(c.options.Dir, "learner"), "existing"); err != nil {
		t.Fatal(err)
	}
	i := len(c.members) - 1
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := client.MemberAddAsLearner(t.Context(), []string{c.members[i].PeerURL})
		if err == nil {
			break
		}
		if time.Now().After(deadline) { // a young cluster refuses for 5 s
			t.Fatalf("adding a learner: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := c.launch(i); err != nil {
		t.Fatal(err)
	}
	for {
		leader, err := client.Status(t.Context(), c.members[0].ClientURL)
		if err == nil {
			if resp, err := client.Status(t.Context(), c.members[i].ClientURL); err == nil && resp.RaftAppliedIndex >= leader.RaftAppliedIndex {
				return i
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the learner did not catch up; the end of its log:\n%s", tail(c.members[i].Log, 20))
		}
		time.Sleep(50 * time.Millisecond)
	}
}
