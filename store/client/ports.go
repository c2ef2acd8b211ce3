package client

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
	lowestPort  = 18000
	highestPort = 32000
)

// lastPort counts through the range from a random start, so that this process does
// not give a port out again soon: its first owner may be stopped just now, to be
// started again.
var lastPort = func() *atomic.Int64 {
	var last atomic.Int64
	last.Store(rand.Int64N(highestPort - lowestPort))
	return &last
}()

// Loopback returns the loopback address to listen on: 127.0.0.1, or ::1 if this host has
// IPv6 only.
func Loopback() string {
	if l, err := listen("127.0.0.1", 0); err == nil {
		_ = l.Close() // it served its purpose
		return "127.0.0.1"
	}
	return "::1"
}

func listen(host string, port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// FreePorts finds n different TCP ports on loopback that nobody listens on now, for
// clusters that may run anywhere: demonstrations, drills and tests. Another process may
// take one before the caller does: who starts a server on it tries again with new ones.
func FreePorts(n int) ([]int, error) {
	var found []int
	var held []net.Listener // until all are found, so that they differ
	defer func() {
		for _, l := range held {
			_ = l.Close() // it served its purpose
		}
	}()
	host := Loopback()
	for range highestPort - lowestPort {
		if len(found) == n {
			return found, nil
		}
		port := lowestPort + int(lastPort.Add(1))%(highestPort-lowestPort)
		l, err := listen(host, port)
		if err != nil {
			continue // taken
		}
		held = append(held, l)
		found = append(found, port)
	}
	if len(found) == n {
		return found, nil
	}
	return nil, fmt.Errorf("no %d free TCP ports found between %d and %d on %s", n, lowestPort, highestPort, host)
}
