package storetest

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/client"
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
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
		if err == nil {
			return &heldPorts{client.NewPortRange(first+1, first+portsOfOne), l}, nil
		}
		last = err
	}
	return nil, fmt.Errorf("more processes of tests run than there are ports for: %w", last)
})

// heldPorts are a range with the listener that keeps it, which nobody calls.
type heldPorts struct {
	*client.PortRange
	listener net.Listener
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
			break
		}
		one, err := own.Free(1)
		if err != nil {
			releasePorts(found)
			return nil, err
		}
		if _, taken := inUse.LoadOrStore(one[0], true); !taken {
			found = append(found, one[0])
		}
	}
	if len(found) < n {
		releasePorts(found)
		return nil, fmt.Errorf("the tests that run now use the %d ports of their process", portsOfOne)
	}
	return found, nil
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
