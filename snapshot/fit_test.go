package snapshot_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

// The member that would be read first is defragmented for long, or its process
// stands still: another one is read, the leader if need be. Where none is fit the
// backup waits as long as it was told to, and then reads one that is not.
func TestTakeReadsUnfitLast(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 2})
	c.Fill(t, storetest.Load{Keys: 200})
	client, err := store.Dial(t.Context(), c.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s, err := client.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follower := -1
	for i := range 2 {
		for _, m := range s.Members {
			if m.Endpoint == c.Endpoints()[i] && !m.IsLeader {
				follower = i
			}
		}
	}
	take := func(fit time.Duration, phases *[]string) *snapshot.Manifest {
		result, err := snapshot.Take(t.Context(), snapshot.Request{Client: client, Tool: "test", Sinks: []sinks.Sink{newDisk(t)}, Fit: fit,
			Progress: func(p snapshot.Progress) {
				if phases != nil && p.Phase == "fit" {
					*phases = append(*phases, p.Phase)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		return result.Outcomes[0].Manifest
	}
	if m := take(0, nil); m.Source.IsLeader {
		t.Error("all are well, and the leader was read")
	}
	slow := c.SlowDisk(t, follower, 150*time.Millisecond)
	etcd := c.Client(t)
	for range 10 {
		if _, err := etcd.Put(t.Context(), "slow", "value"); err != nil {
			t.Fatal(err)
		}
	}
	if m := take(0, nil); !m.Source.IsLeader {
		t.Error("the follower's disk is slow, and it was read")
	}
	other := c.SlowDisk(t, 1-follower, 150*time.Millisecond)
	write, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for write.Err() == nil {
			if _, err := etcd.Put(write, "slow", "value"); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}()
	time.Sleep(time.Second)
	var phases []string
	begun := time.Now()
	take(2*time.Second, &phases)
	if took := time.Since(begun); took < 2*time.Second || len(phases) == 0 {
		t.Errorf("none was fit, and the backup was done after %s (%v)", took, phases)
	}
	// One becomes fit while the backup waits for it.
	phases = nil
	time.AfterFunc(2*time.Second, func() { other.Stop(t) })
	begun = time.Now()
	if m := take(time.Minute, &phases); !m.Source.IsLeader || len(phases) == 0 {
		t.Errorf("read from the leader %v, having waited %d times", m.Source.IsLeader, len(phases))
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the backup took %s", took)
	}
	stop()
	<-done
	slow.Stop(t)
}
