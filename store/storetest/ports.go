package storetest

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The ports of tests lie below those that requorum itself looks for. Each process has
// portsOfOne of them for itself: a member that is killed, to come back on its port,
// would else find another package's member there.
const (
	lowestPort = 12000
	processes  = 15
	portsOfOne = 400
)

// ownPorts are this process's until it ends: it listens on the first one of them, which keeps
// others away whatever their folder for temporary files is.
var ownPorts = sync.OnceValues(func() (*heldPorts, error) {
	var last error
	for i := range processes {
		first := lowestPort + i*portsOfOne
		l, err := listenAt(first)
		if err == nil {
			return &heldPorts{first: first, listener: l}, nil
		}
		last = err
	}
	return nil, fmt.Errorf("more processes of tests run than there are ports for: %w", last)
})

// heldPorts are a range with the listener that keeps it, which nobody calls.
type heldPorts struct {
	first    int
	listener net.Listener
	next     atomic.Int64 // goes round, so that a port is not given out again soon
}

// inUse are the ports of tests that have not ended. Nobody listens there between a kill
// and the restart after it, or before a cluster that is restored is started.
var inUse sync.Map

// freePorts finds n ports that no other test uses, or will use soon: until they are
// released.
func freePorts(n int) ([]int, error) {
	own, err := ownPorts()
	if err != nil {
		return nil, err
	}
	var found []int
	for range portsOfOne {
		if len(found) == n {
			return found, nil
		}
		port := own.first + 1 + int(own.next.Add(1))%(portsOfOne-1)
		// Taken before it is tried: whoever tries another's port can be the one who listens
		// there at the moment when its member comes back.
		if _, taken := inUse.LoadOrStore(port, true); taken {
			continue
		}
		if !isFree(port) {
			inUse.Delete(port)
			continue
		}
		found = append(found, port)
	}
	if len(found) == n {
		return found, nil
	}
	releasePorts(found)
	return nil, fmt.Errorf("the tests that run now use the %d ports of their process", portsOfOne)
}

// isFree tries to connect, since a listener that tried the port would keep it taken for a
// moment longer: children that are started just then have it until they are executed.
func isFree(port int) bool {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err == nil {
		_ = conn.Close() // it served its purpose
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func listenAt(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func releasePorts(ports []int) {
	for _, p := range ports {
		inUse.Delete(p)
	}
}

// portsUntilEnd finds n ports that are the test's until it ends.
func portsUntilEnd(t testing.TB, n int) []int {
	t.Helper()
	free, err := freePorts(n)
	require.NoError(t, err)
	t.Cleanup(func() { releasePorts(free) })
	return free
}

// freePorts finds n ports that are the cluster's until it ends.
func (c *Cluster) freePorts(n int) ([]int, error) {
	free, err := freePorts(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(c.ports, free...)
	return free, err
}
