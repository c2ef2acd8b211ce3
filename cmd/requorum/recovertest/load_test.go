package recovertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
)

// Load is what clients wrote and a cluster acknowledged.
type Load struct {
	mu   sync.Mutex
	acks map[string]Ack
}

// Ack is one acknowledged write of a key that is written once.
type Ack struct {
	Value    string
	Revision int64
	At       time.Time
}

// Enough says when a load is done: by the number of writes that were
// acknowledged, and the time since the first client began.
type Enough func(acknowledged int, since time.Duration) bool

// Writes is done after n of them.
func Writes(n int) Enough {
	return func(acknowledged int, _ time.Duration) bool { return acknowledged >= n }
}

// During is done after a while.
func During(d time.Duration) Enough {
	return func(_ int, since time.Duration) bool { return since >= d }
}

// LightLoad lets clients put one key after the other, each its own below prefix,
// without a pause, until it is enough; then last is called, by the client that got
// the last acknowledgement and before it does anything else. Acknowledgements that
// the others still get count as well.
func LightLoad(t testing.TB, prefix string, enough Enough, last func(), clients ...*clientv3.Client) *Load {
	t.Helper()
	l := &Load{acks: map[string]Ack{}}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var strike sync.Once
	struck := false // read after all
	began := time.Now()
	for i, c := range clients {
		all.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				key, value := fmt.Sprintf("%s%d/%06d", prefix, i, k), fmt.Sprint("value ", k)
				once, done := context.WithTimeout(ctx, 10*time.Second) // AskAgain makes no such request twice
				resp, err := c.Put(once, key, value)
				done()
				if err != nil {
					continue // the power is off, or soon
				}
				if enough(l.add(key, Ack{value, resp.Header.Revision, time.Now()}), time.Since(began)) {
					strike.Do(func() {
						last()
						struck = true
						cancel()
					})
				}
			}
		})
	}
	all.Wait()
	if !struck {
		t.Fatalf("within a minute only %d writes were acknowledged", len(l.Acks()))
	}
	return l
}

func (l *Load) add(key string, a Ack) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks[key] = a
	return len(l.acks)
}

// Acks are those so far.
func (l *Load) Acks() map[string]Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acks)
}

// Missing are the acknowledged writes that a cluster lacks, or has changed: by
// key, with the reason.
func (l *Load) Missing(t testing.TB, prefix string, c *clientv3.Client) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := c.Get(ctx, prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	missing := map[string]string{}
	acks := l.Acks()
	for key := range acks {
		missing[key] = "is not there"
	}
	for _, kv := range resp.Kvs {
		a, ok := acks[string(kv.Key)]
		switch {
		case !ok: // it happened, and nobody heard of it
		case string(kv.Value) != a.Value:
			missing[string(kv.Key)] = fmt.Sprintf("is %q, and was %q", kv.Value, a.Value)
		case kv.ModRevision != a.Revision:
			missing[string(kv.Key)] = fmt.Sprintf("is of revision %d, and was of %d", kv.ModRevision, a.Revision)
		default:
			delete(missing, string(kv.Key))
		}
	}
	return missing
}

// What was acknowledged is known, and found to be missing where it is.
func TestLightLoad(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	called := 0
	l := LightLoad(t, "/a/", Writes(40), func() { called++ }, c.Client(t), c.Client(t))
	if got := len(l.Acks()); got < 40 || called != 1 {
		t.Errorf("%d acknowledged, and the end was reported %d times", got, called)
	}
	client := c.Client(t)
	if missing := l.Missing(t, "/a/", client); len(missing) != 0 {
		t.Errorf("missing: %v", missing)
	}
	keys := slices.Collect(maps.Keys(l.Acks())) // one client may have written them all
	_, err := client.Put(t.Context(), keys[0], "other")
	require.NoError(t, err)
	_, err = client.Delete(t.Context(), keys[1])
	require.NoError(t, err)
	if missing := l.Missing(t, "/a/", client); len(missing) != 2 {
		t.Errorf("two keys were changed, and %d are named: %v", len(missing), missing)
	}
}
