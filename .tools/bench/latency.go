package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// writeRate is how many puts a second clients make while an archiver is
	// watched.
	writeRate = 5000
	// writeFor is how long.
	writeFor = 15 * time.Second
	// writeWarm is how much of the beginning is left out: connections are made,
	// and an archiver takes its first full snapshot.
	writeWarm = 3 * time.Second
	// writesOpen bounds the puts that are waited for at once.
	writesOpen = 4000
)

// writes are the puts of one run, in their order.
type writes struct {
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

// write puts at the rate, whether or not the server keeps up: a latency counts
// from when the put was due.
func write(ctx context.Context, endpoint string) (*writes, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	total := int(writeFor.Seconds() * writeRate)
	w := &writes{due: make([]time.Duration, total), acked: make([]time.Duration, total)}
	value := logValue(rand.New(rand.NewPCG(seed, 1)), 256) //nolint:gosec // no secret
	var wg sync.WaitGroup
	errs := make(chan error, 1)
	open := make(chan struct{}, writesOpen)
	w.began = time.Now()
	for n := range total {
		w.due[n] = time.Duration(n) * time.Second / writeRate
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
	select {
	case err := <-errs:
		return nil, fmt.Errorf("write at %d a second: %w", writeRate, err)
	default:
	}
	if took := time.Since(w.began); took > writeFor*5/4 {
		return nil, errors.New("the server cannot take that many puts a second: it took " + took.String())
	}
	return w, nil
}

// counted is the first put that counts.
func (w *writes) counted() int { return int(writeWarm.Seconds() * writeRate) }

func (w *writes) latencies() []time.Duration {
	var all []time.Duration
	for n := w.counted(); n < len(w.due); n++ {
		all = append(all, w.acked[n]-w.due[n])
	}
	slices.Sort(all)
	return all
}

// quantile is of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
