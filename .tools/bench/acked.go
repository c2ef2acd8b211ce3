package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// ackedPrefix is below keyPrefix, so that one count has all keys.
	ackedPrefix = keyPrefix + "acked/"
	// ackedClients write through each member, each one key after the other.
	ackedClients = 2
	// ackedPage is how many keys are asked for at once.
	ackedPage = 5000
)

// acked is what a cluster has acknowledged: each key was written once.
type acked struct {
	mu     sync.Mutex
	values map[string]string
}

// writeAcked writes for a while, with a pause after each write, then calls last:
// right after an acknowledgement, from the one who got it, while the others go on.
// What they get acknowledged meanwhile counts as well.
func writeAcked(ctx context.Context, over, pause time.Duration, last func(), endpoints ...string) (*acked, error) {
	a := &acked{values: map[string]string{}}
	ctx, cancel := context.WithTimeout(ctx, 2*over+startWait)
	defer cancel()
	var all sync.WaitGroup
	var strike sync.Once
	struck := false // read after all
	began := time.Now()
	for i := range ackedClients * len(endpoints) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoints[i%len(endpoints)]}, DialTimeout: 10 * time.Second,
			Logger: zap.NewNop()}) // it would log the crash
		if err != nil {
			cancel()
			all.Wait()
			return nil, err
		}
		defer client.Close()
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key, value := fmt.Sprintf("%s%02d/%08d", ackedPrefix, i, n), fmt.Sprint("value ", n)
				if _, err := client.Put(ctx, key, value); err != nil {
					continue // it may have happened without an answer
				}
				a.add(key, value)
				if time.Since(began) >= over {
					strike.Do(func() {
						last()
						struck = true
						cancel()
					})
				}
				time.Sleep(pause)
			}
		})
	}
	all.Wait()
	if !struck {
		return nil, errors.Join(fmt.Errorf("writes through %d members: none was acknowledged in the end", len(endpoints)), context.Cause(ctx))
	}
	return a, nil
}

func (a *acked) add(key, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values[key] = value
}

// missing are the writes that a cluster lacks or has otherwise, read through its
// quorum.
func (a *acked) missing(ctx context.Context, endpoints ...string) ([]string, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	have := map[string]string{}
	end := clientv3.GetPrefixRangeEnd(ackedPrefix)
	for from := ackedPrefix; ; {
		page, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(ackedPage))
		if err != nil {
			return nil, fmt.Errorf("read what was acknowledged: %w", err)
		}
		for _, kv := range page.Kvs {
			have[string(kv.Key)] = string(kv.Value)
		}
		if !page.More {
			break
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	var lost []string
	for key, value := range a.values {
		if got, there := have[key]; !there || got != value {
			lost = append(lost, key)
		}
	}
	return lost, nil
}
