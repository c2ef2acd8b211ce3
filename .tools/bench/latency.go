package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// writesOpen bounds the puts that are waited for at once.
const writesOpen = 4000

// pace is how clients put.
type pace struct {
	rate int           // puts a second
	over time.Duration // how long
	warm time.Duration // how much of the beginning is left out
}

// writes are the puts of one run, in their order.
type writes struct {
	pace  pace
	began time.Time
	// due is when a put should have begun, by the rate, after began; acked when
	// it was acknowledged.
	due, acked []time.Duration
}

const timedPrefix = keyPrefix + "timed/"

func timedKey(n int) string { return fmt.Sprintf("%s%08d", timedPrefix, n) }

// timedNumber is which put an archived key is of.
func timedNumber(key []byte) (int, bool) {
	digits, ok := strings.CutPrefix(string(key), timedPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// write puts at a pace, whether or not the server keeps up: a latency counts
// from when the put was due. It ends before the pace does once enough is closed,
// which may be nil.
func write(ctx context.Context, p pace, enough <-chan struct{}, endpoints ...string) (*writes, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	total := int(p.over.Seconds() * float64(p.rate))
	w := &writes{pace: p, due: make([]time.Duration, total), acked: make([]time.Duration, total)}
	value := logValue(rand.New(rand.NewPCG(seed, 1)), 256) //nolint:gosec // no secret
	var wg sync.WaitGroup
	errs := make(chan error, 1)
	open := make(chan struct{}, writesOpen)
	w.began = time.Now()
	made := 0
	for ; made < total && ctx.Err() == nil && !closed(enough); made++ {
		n := made
		w.due[n] = p.due(n)
		if wait := w.due[n] - time.Since(w.began); wait > 0 {
			time.Sleep(wait)
		}
		open <- struct{}{}
		wg.Go(func() {
			defer func() { <-open }()
			if _, err := client.Put(ctx, timedKey(n), value); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
			w.acked[n] = time.Since(w.began)
		})
	}
	wg.Wait()
	w.due, w.acked = w.due[:made], w.acked[:made]
	select {
	case err := <-errs:
		return nil, fmt.Errorf("write at %d a second: %w", p.rate, err)
	default:
	}
	if took := time.Since(w.began); took > p.due(made)*5/4 {
		return nil, fmt.Errorf("the server cannot take %d puts a second: %d of them took %s", p.rate, made, took)
	}
	return w, ctx.Err()
}

// due is when a put is to begin.
func (p pace) due(n int) time.Duration { return time.Duration(n) * time.Second / time.Duration(p.rate) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// counted is the first put that counts.
func (w *writes) counted() int { return int(w.pace.warm.Seconds() * float64(w.pace.rate)) }

func (w *writes) latencies() []time.Duration {
	return w.between(w.began, w.began.Add(w.pace.over))
}

// between are the latencies of the puts that count and were due in a stretch of
// time, sorted.
func (w *writes) between(from, to time.Time) []time.Duration {
	var all []time.Duration
	for n := w.counted(); n < len(w.due); n++ {
		if due := w.began.Add(w.due[n]); !due.Before(from) && due.Before(to) {
			all = append(all, w.acked[n]-w.due[n])
		}
	}
	slices.Sort(all)
	return all
}

// quantile is of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
