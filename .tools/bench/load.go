package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// loaders write at once. Each has a seed of its own, so that its objects do
	// not depend on how they interleave.
	loaders = 4
	// batch is the number of operations in one transaction.
	batch = 48
	// checkEvery is the number of a loader's transactions between two looks at
	// the size of the database.
	checkEvery = 16
	// compactEvery is the number of a loader's transactions between compactions.
	compactEvery = 64
	// leaseTTL in seconds is longer than any run: nothing expires meanwhile.
	leaseTTL = 7 * 24 * 3600
)

// loaded is what the loading process reports to the one that started it.
type loaded struct {
	Keys     int64 `json:"keys"`
	Revision int64 `json:"revision"`
	Leases   int   `json:"leases"`

	bytes int64 // of the database on disk: the one who started it looks
}

// loadMain is the loading process: "bench load ENDPOINT BYTES SEED" writes
// until the database has BYTES in use. It is a process of its own because a
// child's peak memory, as the kernel counts it, is never below that of the
// process that started it.
func loadMain(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("load: want ENDPOINT BYTES SEED")
	}
	target, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("load: bytes: %w", err)
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("load: seed: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{args[0]}, DialTimeout: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("load: connect to %s: %w", args[0], err)
	}
	defer client.Close()
	group, loading := errgroup.WithContext(ctx)
	for i := range uint64(loaders) {
		l := &loader{client: client, endpoint: args[0], target: target, compacts: i == 0,
			objects: newObjects(seed + i), rng: rand.New(rand.NewPCG(seed+i, 11))}
		group.Go(func() error { return l.run(loading) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("load %s: %w", args[0], err)
	}
	all, err := client.Get(ctx, keyPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("count the keys: %w", err)
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return fmt.Errorf("count the leases: %w", err)
	}
	return json.NewEncoder(out).Encode(loaded{Keys: all.Count, Revision: all.Header.Revision, Leases: len(leases.Leases)})
}

// loader writes new objects, changes and deletes some of those that it wrote,
// and attaches events to leases, as an API server does.
type loader struct {
	client   *clientv3.Client
	endpoint string
	target   int64
	compacts bool

	objects *objects
	rng     *rand.Rand
	written []writtenKey
	lease   clientv3.LeaseID
	past    int64 // the revision at the time of the last compaction
}

type writtenKey struct {
	key  string
	kind kind
}

func (l *loader) run(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%checkEvery == 0 {
			status, err := l.client.Status(ctx, l.endpoint)
			if err != nil {
				return err
			}
			if status.DbSizeInUse >= l.target {
				return nil
			}
			if l.lease, err = l.grant(ctx); err != nil {
				return err
			}
		}
		written, err := l.client.Txn(ctx).Then(l.transaction()...).Commit()
		if err != nil {
			return err
		}
		if l.compacts && n%compactEvery == 0 {
			if err := l.compact(ctx, written.Header.Revision); err != nil {
				return err
			}
		}
	}
}

func (l *loader) grant(ctx context.Context) (clientv3.LeaseID, error) {
	lease, err := l.client.Grant(ctx, leaseTTL)
	if err != nil {
		return 0, err
	}
	return lease.ID, nil
}

// compact drops the history before the last call, as Kubernetes does every few
// minutes. It leaves free pages, which a real database has.
func (l *loader) compact(ctx context.Context, now int64) error {
	before := l.past
	l.past = now
	if before == 0 {
		return nil
	}
	_, err := l.client.Compact(ctx, before)
	return err
}

// transaction is a batch of operations: of a hundred about 75 create, 20
// change and 5 delete. It names no key twice: etcd refuses that.
func (l *loader) transaction() []clientv3.Op {
	var ops []clientv3.Op
	used := map[string]bool{}
	for len(ops) < batch {
		what := l.rng.IntN(100)
		if what < 25 && len(l.written) > 1000 {
			i := l.rng.IntN(len(l.written))
			old := l.written[i]
			if used[old.key] {
				continue
			}
			used[old.key] = true
			if what >= 5 {
				ops = append(ops, l.put(old.key, old.kind(l.objects).value))
				continue
			}
			l.written[i] = l.written[len(l.written)-1]
			l.written = l.written[:len(l.written)-1]
			ops = append(ops, clientv3.OpDelete(old.key))
			continue
		}
		kind := l.objects.draw()
		o := kind(l.objects)
		if used[o.key] {
			continue
		}
		used[o.key] = true
		l.written = append(l.written, writtenKey{o.key, kind})
		ops = append(ops, l.put(o.key, o.value))
	}
	return ops
}

func (l *loader) put(key, value string) clientv3.Op {
	if strings.HasPrefix(key, keyPrefix+"events/") {
		return clientv3.OpPut(key, value, clientv3.WithLease(l.lease))
	}
	return clientv3.OpPut(key, value)
}
