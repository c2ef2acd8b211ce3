package storetest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	Reconfigure(t, func(ctx context.Context) error {
		_, err := client.MemberAddAsLearner(ctx, []string{c.members[i].PeerURL})
		return err
	}, rpctypes.ErrPeerURLExist)
	if err := c.launch(i); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		leader, err := client.Status(t.Context(), c.members[0].ClientURL)
		if err == nil {
			if resp, err := client.Status(t.Context(), c.members[i].ClientURL); err == nil && resp.RaftAppliedIndex >= leader.RaftAppliedIndex {
				return i
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the learner did not catch up; the end of its log:\n%s", tail(c.members[i].Log, 20))
		}
	}
}
