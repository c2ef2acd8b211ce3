package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/requorum/requorum/store"
)

// demoLoad is the client of the demo: it writes, remembers what was
// acknowledged, and compares that with another cluster.
type demoLoad struct {
	client *clientv3.Client
	lease  clientv3.LeaseID

	stop         context.CancelFunc // of the writer
	writing      sync.WaitGroup
	mu           sync.Mutex  // while the writer runs
	acknowledged []demoWrite // all writes, in their order by client
}

// demoWrite is a write that was acknowledged.
type demoWrite struct {
	key      string
	value    string
	revision int64
	deleted  bool
}

const (
	demoLeaseKey = "/demo/lease"
	// demoPreciousKey is deleted by mistake.
	demoPreciousKey   = "/demo/precious"
	demoPreciousValue = "changed after the backup"
	demoPrefix        = "/demo/"
	demoBatch         = 100 // puts in one transaction; etcd allows 128
)

func demoClient(endpoints []string, files store.TLSFiles) (*clientv3.Client, error) {
	config, err := files.Client()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func demoValue(key string, n int) string {
	return fmt.Sprintf(`{"name":%q,"generation":%d,"note":"written by requorum demo"}`, key, n)
}

// fill writes n keys, and one that hangs on a lease.
func (l *demoLoad) fill(ctx context.Context, n int) error {
	lease, err := again(ctx, func() (*clientv3.LeaseGrantResponse, error) { return l.client.Grant(ctx, 3600) })
	if err != nil {
		return err
	}
	l.lease = lease.ID
	held := clientv3.OpPut(demoLeaseKey, "held", clientv3.WithLease(l.lease))
	if _, err := again(ctx, func() (clientv3.OpResponse, error) { return l.client.Do(ctx, held) }); err != nil {
		return err
	}
	if err := l.put(ctx, demoPreciousKey, "as it was at the beginning"); err != nil {
		return err
	}
	for from := 0; from < n; from += demoBatch {
		var ops []clientv3.Op
		var writes []demoWrite
		for i := from; i < min(n, from+demoBatch); i++ {
			key := fmt.Sprintf("%skeys/%06d", demoPrefix, i)
			writes = append(writes, demoWrite{key: key, value: demoValue(key, i)})
			ops = append(ops, clientv3.OpPut(key, demoValue(key, i)))
		}
		res, err := again(ctx, func() (*clientv3.TxnResponse, error) { return l.client.Txn(ctx).Then(ops...).Commit() })
		if err != nil {
			return err
		}
		for _, w := range writes {
			w.revision = res.Header.Revision
			l.acknowledge(w)
		}
	}
	return nil
}

// again makes a request that a member refuses while a leader is elected, as it comes to
// be where there is little of a processor for three members.
func again[T any](ctx context.Context, request func() (T, error)) (T, error) {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		response, err := request()
		var refused rpctypes.EtcdError
		if !errors.As(err, &refused) || refused.Code() != codes.Unavailable || ctx.Err() != nil || time.Since(began) > 30*time.Second {
			return response, err
		}
	}
}

// applied is how far the member has come that is furthest.
func (l *demoLoad) applied(ctx context.Context) (index uint64, err error) {
	for _, endpoint := range l.client.Endpoints() {
		status, err := l.client.Status(ctx, endpoint)
		if err != nil {
			return 0, err
		}
		index = max(index, status.RaftAppliedIndex)
	}
	return index, nil
}

func (l *demoLoad) acknowledge(w demoWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledged = append(l.acknowledged, w)
}

func (l *demoLoad) put(ctx context.Context, key, value string) error {
	res, err := again(ctx, func() (*clientv3.PutResponse, error) { return l.client.Put(ctx, key, value) })
	if err != nil {
		return err
	}
	l.acknowledge(demoWrite{key: key, value: value, revision: res.Header.Revision})
	return nil
}

// deletePrecious changes the key and deletes it.
func (l *demoLoad) deletePrecious(ctx context.Context) (revision int64, err error) {
	if err := l.put(ctx, demoPreciousKey, demoPreciousValue); err != nil {
		return 0, err
	}
	res, err := again(ctx, func() (*clientv3.DeleteResponse, error) { return l.client.Delete(ctx, demoPreciousKey) })
	if err != nil {
		return 0, err
	}
	l.acknowledge(demoWrite{key: demoPreciousKey, revision: res.Header.Revision, deleted: true})
	return res.Header.Revision, nil
}

// startWriter puts keys one after the other until stopWriter.
func (l *demoLoad) startWriter() {
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.writing.Go(func() {
		for i := 0; ; i++ {
			key := fmt.Sprintf("%slive/%03d", demoPrefix, i%200)
			if err := l.put(ctx, key, demoValue(key, i)); err != nil {
				return // it was stopped; what was not acknowledged is not promised
			}
		}
	})
}

// stopWriter may be called again.
func (l *demoLoad) stopWriter() {
	l.stop()
	l.writing.Wait()
}

// acknowledgedAfter counts the writes that were acknowledged after a revision.
func (l *demoLoad) acknowledgedAfter(revision int64) (n int) {
	for _, w := range l.acknowledged {
		if w.revision > revision {
			n++
		}
	}
	return n
}

// lastRevision is that of the last write that was acknowledged.
func (l *demoLoad) lastRevision() (revision int64) {
	for _, w := range l.acknowledged {
		revision = max(revision, w.revision)
	}
	return revision
}

// expected is what the acknowledged writes up to a revision left.
func (l *demoLoad) expected(revision int64) map[string]demoWrite {
	last := map[string]demoWrite{}
	for _, w := range l.acknowledged {
		if w.revision <= revision && w.revision > last[w.key].revision {
			last[w.key] = w
		}
	}
	return last
}

func (l *demoLoad) tryWrite(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := l.client.Put(ctx, demoPrefix+"too-late", "x")
	return err
}

// prove looks for the lease in another cluster, and wants every key as the last
// acknowledged write up to a revision left it. One write may have been under way, and may
// be there instead.
func (l *demoLoad) prove(ctx context.Context, c *clientv3.Client, revision int64) (compared int, err error) {
	ttl, err := c.TimeToLive(ctx, l.lease, clientv3.WithAttachedKeys())
	if err != nil {
		return 0, err
	}
	if ttl.TTL <= 0 || len(ttl.Keys) != 1 || string(ttl.Keys[0]) != demoLeaseKey {
		return 0, fmt.Errorf("the lease %x has %d s left and the keys %q, want %s", l.lease, ttl.TTL, ttl.Keys, demoLeaseKey)
	}
	res, err := c.Get(ctx, demoPrefix, clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	found := map[string]*mvccpb.KeyValue{}
	for _, kv := range res.Kvs {
		found[string(kv.Key)] = kv
	}
	expected := l.expected(revision)
	under := 0
	for key, want := range expected {
		kv := found[key]
		switch {
		case want.deleted && kv == nil:
		case want.deleted:
			return 0, fmt.Errorf("the key %s is there: it was deleted at revision %d", key, want.revision)
		case kv == nil:
			return 0, fmt.Errorf("the key %s is missing: it was acknowledged at revision %d", key, want.revision)
		case kv.ModRevision > want.revision && kv.ModRevision <= revision && under == 0:
			under++
		case kv.ModRevision != want.revision || string(kv.Value) != want.value:
			return 0, fmt.Errorf("the key %s has revision %d, want %d", key, kv.ModRevision, want.revision)
		}
	}
	return len(expected), nil
}

// watchOn wants a watch to go on from a revision.
func watchOn(ctx context.Context, c *clientv3.Client, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	event := <-c.Watch(ctx, demoPrefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err := event.Err(); err != nil || len(event.Events) == 0 {
		return fmt.Errorf("a watch from revision %d does not go on: %w", revision, err)
	}
	return nil
}

// readPrecious reads the key that was deleted, in another cluster.
func readPrecious(ctx context.Context, c *clientv3.Client) (string, error) {
	res, err := c.Get(ctx, demoPreciousKey)
	if err != nil {
		return "", err
	}
	if len(res.Kvs) != 1 || string(res.Kvs[0].Value) != demoPreciousValue {
		return "", fmt.Errorf("the key %s was not brought back: %v", demoPreciousKey, res.Kvs)
	}
	return string(res.Kvs[0].Value), nil
}
