package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Ack is one write that the cluster acknowledged.
type Ack struct {
	Key, Value string
	Revision   int64
}

// Writer writes without a pause in the background, one put after the other,
// and keeps what was acknowledged. Failed puts are not kept; they may have
// happened.
type Writer struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	acks   []Ack
	failed int
}

// StartWriter begins to write numbered keys under prefix. It ends with the
// test, or with Stop.
func StartWriter(t testing.TB, client *clientv3.Client, prefix string) *Writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{cancel: cancel, done: make(chan struct{})}
	go w.write(ctx, client, prefix)
	t.Cleanup(func() { w.Stop() })
	return w
}

func (w *Writer) write(ctx context.Context, client *clientv3.Client, prefix string) {
	defer close(w.done)
	for n := 0; ctx.Err() == nil; n++ {
		ack := Ack{Key: fmt.Sprintf("%s%09d", prefix, n), Value: fmt.Sprint("value ", n)}
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		resp, err := client.Put(bounded, ack.Key, ack.Value)
		cancel()
		w.mu.Lock()
		if err != nil {
			w.failed++
		} else {
			ack.Revision = resp.Header.Revision
			w.acks = append(w.acks, ack)
		}
		w.mu.Unlock()
		if err != nil {
			select { // the cluster may be down for a while
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// Acknowledged is what was acknowledged so far.
func (w *Writer) Acknowledged() []Ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Ack(nil), w.acks...)
}

// WaitFor waits until n writes have been acknowledged.
func (w *Writer) WaitFor(t testing.TB, n int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for len(w.Acknowledged()) < n {
		if time.Now().After(deadline) {
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Fatalf("%d writes acknowledged, %d failed; want %d acknowledged", len(w.acks), w.failed, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends the writing and gives all acknowledged writes. It may be called
// more than once.
func (w *Writer) Stop() []Ack {
	w.cancel()
	<-w.done
	return w.Acknowledged()
}
