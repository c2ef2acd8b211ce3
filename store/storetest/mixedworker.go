package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// MixedPrefix begins all keys of a mixed load.
const MixedPrefix = "/mixed/"

// mixedKeys is how many keys a worker has of its own: so few that most are
// overwritten and deleted many times.
const mixedKeys = 150

// mixedWorker makes one request after the other.
type mixedWorker struct {
	load   *Mixed
	client *clientv3.Client
	rng    *rand.Rand
	prefix string
	quota  int
}

func newMixedWorker(m *Mixed, i int) *mixedWorker {
	return &mixedWorker{
		load: m, client: m.clients[i%len(m.clients)],
		rng:    rand.New(rand.NewPCG(m.options.Seed, uint64(i))),
		prefix: fmt.Sprintf("%s%03d/", MixedPrefix, i),
		quota:  (m.options.Ops + m.options.Workers - 1) / m.options.Workers,
	}
}

// slowly is how long a worker that has done its part waits between requests,
// until the rest of the load has been done.
const slowly = 100 * time.Millisecond

func (w *mixedWorker) run(ctx context.Context) {
	for n := 0; !w.load.Over(); n++ {
		wait := time.Duration(0)
		if n >= w.quota {
			wait = slowly
		}
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		kind, err := w.step(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.load.counts.note(kind, err)
		w.load.done.Add(1)
		if err != nil {
			wait = max(wait, 5*time.Millisecond)
		}
		if wait > 0 && !pause(ctx, wait) {
			return
		}
	}
}

// step draws all its random numbers whatever happens, so that the next ones are
// the same in each run.
func (w *mixedWorker) step(ctx context.Context) (Kind, error) {
	what, key := w.rng.IntN(1000), w.key()
	switch {
	case what < 420:
		return PutSmall, w.put(ctx, key, w.value(8, 256))
	case what < 560:
		return PutMedium, w.put(ctx, key, w.value(1000, 4000))
	case what < 563:
		return PutLarge, w.put(ctx, key, w.value(30_000, 90_000))
	case what < 620:
		value := w.value(8, 256)
		lease, ok := w.load.leases.any()
		if !ok {
			return PutSmall, w.put(ctx, key, value)
		}
		return PutLeased, w.put(ctx, key, value, clientv3.WithLease(lease))
	case what < 720:
		_, err := w.client.Delete(ctx, key)
		return Delete, err
	case what < 760:
		_, err := w.client.Delete(ctx, key, clientv3.WithRange(w.key()))
		return DeleteMap, err
	case what < 940:
		return w.txn(ctx, key)
	default:
		return TxnNested, w.nested(ctx, key)
	}
}

func (w *mixedWorker) key() string { return fmt.Sprintf("%sk%03d", w.prefix, w.rng.IntN(mixedKeys)) }

// shared is a key that all workers write.
func (w *mixedWorker) shared() string {
	return fmt.Sprintf("%sshared/%02d", MixedPrefix, w.rng.IntN(20))
}

func (w *mixedWorker) put(ctx context.Context, key, value string, options ...clientv3.OpOption) error {
	_, err := w.client.Put(ctx, key, value, options...)
	return err
}

// value is half random and half not.
func (w *mixedWorker) value(least, most int) string {
	b := make([]byte, least+w.rng.IntN(most-least))
	for i := 0; i < len(b); i += 2 {
		b[i] = byte(w.rng.Uint32())
	}
	return string(b)
}

// txn compares what may hold or not.
func (w *mixedWorker) txn(ctx context.Context, key string) (Kind, error) {
	shared, value := w.shared(), w.value(8, 512)
	compares := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(key), ">", 0),
		clientv3.Compare(clientv3.Version(shared), "<", 1_000_000),
		clientv3.Compare(clientv3.Value(key), "!=", "nobody's"),
		clientv3.Compare(clientv3.LeaseValue(shared), "=", 0),
	}
	resp, err := w.client.Txn(ctx).If(compares[:1+w.rng.IntN(len(compares))]...).
		Then(clientv3.OpPut(shared, value), clientv3.OpDelete(key), clientv3.OpGet(key)).
		Else(clientv3.OpPut(key, value), clientv3.OpGet(shared)).Commit()
	if err == nil && resp.Succeeded {
		return TxnThen, nil
	}
	return TxnElse, err
}

// nested puts transactions into transactions. A key is named once in what may
// happen together: etcd refuses more.
func (w *mixedWorker) nested(ctx context.Context, key string) error {
	inner := clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), ">", 0).WithPrefix()},
		[]clientv3.Op{clientv3.OpDelete(key, clientv3.WithPrefix()), clientv3.OpPut(w.prefix+"then", w.value(8, 64))},
		[]clientv3.Op{
			clientv3.OpPut(key, w.value(8, 64)),
			clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(w.prefix+"innermost", w.value(8, 64)), clientv3.OpGet(w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())}, nil),
		})
	_, err := w.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(w.prefix+"outer"), "<", int64(w.rng.IntN(100)))).
		Then(clientv3.OpPut(w.prefix+"outer", w.value(8, 64)), inner).
		Else(inner, clientv3.OpDelete(w.prefix+"outer")).Commit()
	return err
}
