package recovertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// netnsDir is where iproute2 keeps the namespaces that have names.
const netnsDir = "/run/netns"

// possible tells, once, why no hosts can be made here; nil where they can.
var possible = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces take root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("ip is not installed (apt-get install iproute2)")
	}
	probe := fmt.Sprintf("rqprobe%d", os.Getpid())
	if err := tryIP("link", "add", probe, "type", "bridge"); err != nil {
		return fmt.Errorf("no bridge can be made here: %w", err)
	}
	return tryIP("link", "del", probe)
})

// needNetwork skips a test, loudly, where no hosts can be made.
func needNetwork(t testing.TB) {
	t.Helper()
	if err := possible(); err != nil {
		storetest.Unavailable(t, err.Error())
	}
}

// A site's bridge is in the namespace of the test itself, which so has an address
// in the network: that of the operator's machine, and of clients.
func bridgeName(number int) string { return fmt.Sprintf("rq%d", number) }

// address is the n-th host's, from 1; 254 is the operator's.
func address(number, n int) string { return fmt.Sprintf("10.213.%d.%d", number, n) }

func addBridge(t testing.TB, number int) {
	t.Helper()
	ip(t, "link", "add", bridgeName(number), "type", "bridge")
	ip(t, "addr", "add", address(number, 254)+"/24", "dev", bridgeName(number))
	ip(t, "link", "set", bridgeName(number), "up")
}

// addHost makes a namespace whose eth0 is plugged into the bridge.
func addHost(t testing.TB, number, n int) namespace {
	t.Helper()
	space := namespace(fmt.Sprintf("rq%d-%d", number, n))
	ip(t, "netns", "add", string(space))
	ip(t, "link", "add", cable(number, n), "type", "veth", "peer", "name", "eth0", "netns", string(space))
	ip(t, "link", "set", cable(number, n), "master", bridgeName(number), "up")
	ip(t, "-n", string(space), "addr", "add", address(number, n)+"/24", "dev", "eth0")
	ip(t, "-n", string(space), "link", "set", "eth0", "up")
	ip(t, "-n", string(space), "link", "set", "lo", "up")
	return space
}

// cable is the bridge's end of a host's link.
func cable(number, n int) string { return fmt.Sprintf("rq%dh%d", number, n) }

func ip(t testing.TB, args ...string) {
	t.Helper()
	require.NoError(t, tryIP(args...))
}

func tryIP(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
