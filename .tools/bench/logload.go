package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// logLoad is a kind of log that is replayed.
type logLoad struct {
	name     string
	requests int
	puts     bool // nothing but puts
	request  func(ctx context.Context, c *clientv3.Client, rng *rand.Rand) error
}

// logLoads are made of so many requests that a process's start is a small part of a replay.
func logLoads() []logLoad {
	return []logLoad{
		{"puts of 256 B", 300_000, true, putOf(256)},
		{"puts of 1.4 KB", 150_000, true, putOf(1400)},
		{"mixed", 200_000, false, mixedRequest},
	}
}

const logKeys = 20_000

func logKey(rng *rand.Rand) string { return fmt.Sprintf("%slog/%05d", keyPrefix, rng.IntN(logKeys)) }

// logValue is hexadecimal: it compresses to about half.
func logValue(rng *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "%016x", rng.Uint64())
	}
	return b.String()[:size]
}

func putOf(size int) func(context.Context, *clientv3.Client, *rand.Rand) error {
	return func(ctx context.Context, c *clientv3.Client, rng *rand.Rand) error {
		_, err := c.Put(ctx, logKey(rng), logValue(rng, size))
		return err
	}
}

// mixedRequest is a put of 256 B or 1.4 KB, a deletion, a transaction, or a
// lease with a key.
func mixedRequest(ctx context.Context, c *clientv3.Client, rng *rand.Rand) (err error) {
	key := logKey(rng)
	switch what := rng.IntN(100); {
	case what < 50:
		_, err = c.Put(ctx, key, logValue(rng, 256))
	case what < 60:
		_, err = c.Put(ctx, key, logValue(rng, 1400))
	case what < 75:
		_, err = c.Delete(ctx, key)
	case what < 95:
		_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), ">", 0)).
			Then(clientv3.OpPut(key, logValue(rng, 256))).
			Else(clientv3.OpPut(key, logValue(rng, 256)), clientv3.OpGet(logKey(rng)+"/other")).Commit()
	default:
		var lease *clientv3.LeaseGrantResponse
		if lease, err = c.Grant(ctx, leaseTTL); err == nil {
			_, err = c.Put(ctx, key, logValue(rng, 256), clientv3.WithLease(lease.ID))
		}
	}
	return err
}

const (
	// logWriters write at once, which a load of single requests needs to be
	// quick.
	logWriters = 64
	// logCompactEvery is the number of requests between compactions.
	logCompactEvery = 20_000
)

// fillLog makes the requests of a load, and gives the revision at the end.
func (l logLoad) fill(ctx context.Context, endpoint string) (int64, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	var done atomic.Int64
	group, writing := errgroup.WithContext(ctx)
	for i := range uint64(logWriters) {
		rng := rand.New(rand.NewPCG(seed, i)) //nolint:gosec // values, not secrets
		group.Go(func() error {
			for n := done.Add(1); n <= int64(l.requests); n = done.Add(1) {
				if err := l.request(writing, client, rng); err != nil {
					return err
				}
				if n%logCompactEvery == 0 {
					if err := compactHere(writing, client); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w", l.name, err)
	}
	end, err := client.Get(ctx, "x")
	if err != nil {
		return 0, err
	}
	return end.Header.Revision, nil
}

func compactHere(ctx context.Context, client *clientv3.Client) error {
	now, err := client.Put(ctx, keyPrefix+"compact-here", "x")
	if err != nil {
		return err
	}
	_, err = client.Compact(ctx, now.Header.Revision)
	return err
}
