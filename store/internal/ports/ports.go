// Package ports finds free TCP ports on loopback, for clusters that may run
// anywhere: demonstrations and tests.
package ports

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// The range lies below the one that Linux takes the ports of outgoing
// connections from (32768 on), so that a port found here is only ever taken by
// somebody who looks for one too.
const (
	lowest  = 18000
	highest = 32000
)

var common = NewRange(lowest, highest)

// Free finds n different ports that nobody listens on now. Another process may
// take one before the caller does: who starts a server on it tries again with
// new ones.
func Free(n int) ([]int, error) { return common.Free(n) }

// Range are ports to look for free ones in.
type Range struct {
	low, high int
	// next counts through the range from a random start, so that this process does
	// not give a port out again soon: its first owner may be stopped just now, to be
	// started again.
	next atomic.Int64
}

// NewRange is a range with a random start.
func NewRange(lowest, highest int) *Range {
	r := &Range{low: lowest, high: highest}
	r.next.Store(rand.Int64N(int64(highest - lowest)))
	return r
}

// Free is the function of this name, for ports of the range.
func (r *Range) Free(n int) ([]int, error) {
	var found []int
	var held []net.Listener // until all are found, so that they differ
	defer func() {
		for _, l := range held {
			_ = l.Close() // it served its purpose
		}
	}()
	for range r.high - r.low {
		if len(found) == n {
			return found, nil
		}
		port := r.low + int(r.next.Add(1))%(r.high-r.low)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // taken
		}
		held = append(held, l)
		found = append(found, port)
	}
	if len(found) == n {
		return found, nil
	}
	return nil, fmt.Errorf("no %d free TCP ports found between %d and %d on 127.0.0.1", n, r.low, r.high)
}
