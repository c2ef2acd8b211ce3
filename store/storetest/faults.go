package storetest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Fault is what may happen to a member while its database is read.
type Fault int

// The faults.
const (
	Compacted Fault = iota
	Killed          // and not started again
	Defragmented
	Restarted // after a kill
	Alarmed   // that no space is left, and no longer
	Upgraded  // else stopped and started
)

// Faults is how many there are.
const Faults = int(Upgraded) + 1

// Inject has a fault befall a member. versions are those of all members, where they may be
// upgraded. What the cluster refuses is logged.
func (c *Cluster) Inject(t testing.TB, kv *clientv3.Client, f Fault, member int, versions []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	switch f {
	case Compacted:
		c.Compact(t, kv, 20)
	case Killed:
		c.Kill(member)
	case Restarted:
		c.Revive(t, member)
	case Alarmed:
		for _, action := range []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE} {
			status, err := kv.Status(ctx, c.Member(member).ClientURL)
			if err == nil {
				_, err = pb.NewMaintenanceClient(kv.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE, MemberID: status.Header.MemberId})
			}
			if err != nil {
				t.Logf("alarm: %v", err)
			}
		}
	case Defragmented:
		await := c.AwaitLog(t, member, `"defragmenting"`)
		go kv.Defragment(context.WithoutCancel(ctx), c.Member(member).ClientURL) // it ends when the streams do
		await(nil)
	case Upgraded:
		c.Stop(member)
		if all := Versions(); versions != nil && versions[member] == slices.Min(versions) && versions[member] != all[len(all)-1] {
			versions[member] = all[slices.Index(all, versions[member])+1]
			c.RestartAs(t, member, versions[member])
			c.WaitReady(t)
			return
		}
		c.Revive(t, member)
	}
}

// Compact compacts all but so many of the newest revisions. What the cluster refuses is logged.
func (c *Cluster) Compact(t testing.TB, kv *clientv3.Client, but int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	head, err := kv.Get(ctx, "x")
	if err == nil {
		_, err = kv.Compact(ctx, head.Header.Revision-but, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Logf("compaction: %v", err)
	}
}

// Revive starts a member, which may run or not.
func (c *Cluster) Revive(t testing.TB, member int) {
	t.Helper()
	c.Kill(member)
	c.Restart(t, member)
	c.WaitReady(t)
}

// AwaitLog gives what waits until a member logs something anew, from now on, or until over is closed.
func (c *Cluster) AwaitLog(t testing.TB, member int, what string) func(over <-chan struct{}) {
	t.Helper()
	read := func() string {
		data, err := os.ReadFile(c.Member(member).Log)
		require.NoError(t, err)
		return string(data)
	}
	before := len(read())
	return func(over <-chan struct{}) {
		for !strings.Contains(read()[before:], what) {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}
