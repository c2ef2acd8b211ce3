package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Leader is the member that leads, of those named, or of all; it waits until one
// does.
func (c *Cluster) Leader(t testing.TB, members ...int) int {
	t.Helper()
	if len(members) == 0 {
		for i := range c.members {
			members = append(members, i)
		}
	}
	client := c.Client(t, members...)
	leader := 0
	Eventually(t, "one of the members leads", func() error {
		all := errors.New("none does")
		for _, i := range members {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			s, err := client.Status(ctx, c.members[i].ClientURL)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				leader = i
				return nil
			}
			all = errors.Join(all, err)
		}
		return all
	})
	return leader
}

// MoveLeader hands the leadership to a member, if it is not there already. Those
// named run; nobody named: all do.
func (c *Cluster) MoveLeader(t testing.TB, to int, running ...int) {
	t.Helper()
	Eventually(t, c.members[to].Name+" leads", func() error {
		from := c.Leader(t, running...)
		if from == to {
			return nil
		}
		status, err := c.Client(t, to).Status(t.Context(), c.members[to].ClientURL)
		if err == nil {
			_, err = c.Client(t, from).MoveLeader(t.Context(), status.Header.MemberId)
		}
		return errors.Join(fmt.Errorf("%s does", c.members[from].Name), err)
	})
}

// CutOffWriting isolates the leader of all members with writes in its log that it
// cannot commit any more, and that nobody acknowledged; their keys begin with what
// it returns. A leader leads for an election timeout after it has been cut off; on a
// busy machine none of the writes may have come to its log by then: it tries again,
// with other keys, until some have.
func (c *Cluster) CutOffWriting(t testing.TB, leader int) (prefix string) {
	t.Helper()
	for try := range 20 {
		prefix = fmt.Sprintf("/never-committed/%d/", try)
		c.MoveLeader(t, leader)
		client := c.Client(t, leader)
		if _, err := client.Get(t.Context(), "x"); err != nil { // it is connected
			t.Fatal(err)
		}
		c.CutOff(t, leader)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, err := client.Put(ctx, fmt.Sprintf("%s%02d", prefix, i), "lost"); err == nil {
					t.Error("a leader without followers acknowledged a write")
				}
			})
		}
		c.Isolate(t, leader)
		cancel()
		wg.Wait()
		if c.inWAL(t, leader, prefix) {
			return prefix
		}
		c.Rejoin(leader)
		c.WaitReady(t)
	}
	t.Fatalf("member %s was cut off twenty times, and none of the writes that it got came to its log", c.members[leader].Name)
	return ""
}

// inWAL reports whether a member's log files hold a text.
func (c *Cluster) inWAL(t testing.TB, i int, text string) bool {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(c.members[i].DataDir, "member", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("the WAL of member %s: %d segments, %v", c.members[i].Name, len(segments), err)
	}
	for _, path := range segments {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}
