package recovertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// netnsDir is where iproute2 keeps the namespaces that have names.
const netnsDir = "/run/netns"

// possible says, once, why no hosts can be made here; nil where they can.
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

// numbers are how many sites can be there at once: each has the network
// 10.213.NUMBER.0/24.
const numbers = 250

// locks has a file for each number that was ever used. Whoever has it locked
// has the number; the lock of a process that was killed is free. It is the machine's, as the
// networks are, whatever TMPDIR says: tests with another one would remove networks in use.
func locks() string { return filepath.Join(filepath.Dir(netnsDir), "requorum-recovertest") }

// takeNumber gives a number that nobody has, with the lock: closing it gives the
// number back. What an earlier owner left is gone.
func takeNumber(t testing.TB) (int, *os.File) {
	t.Helper()
	require.NoError(t, os.MkdirAll(locks(), 0o700))
	removeLeftovers(t)
	for _, i := range rand.Perm(numbers) {
		if lock := lockNumber(t, i+1); lock != nil {
			sweep(t, i+1)
			return i + 1, lock
		}
	}
	t.Fatalf("all %d networks are in use: see %s", numbers, locks())
	return 0, nil
}

// lockNumber gives nil where somebody has the number.
func lockNumber(t testing.TB, number int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(locks(), strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return nil
	}
	return f
}

// removeLeftovers removes what sites have left whose processes were killed.
func removeLeftovers(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(locks())
	require.NoError(t, err)
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if lock := lockNumber(t, number); lock != nil {
			sweep(t, number)
			lock.Close()
		}
	}
}

// sweep ends all processes of a number's hosts and removes their network.
func sweep(t testing.TB, number int) {
	t.Helper()
	spaces, err := filepath.Glob(filepath.Join(netnsDir, fmt.Sprintf("rq%d-*", number)))
	require.NoError(t, err)
	for _, path := range spaces {
		space := namespace(filepath.Base(path))
		space.killAll(t)
		ip(t, "netns", "del", string(space))
	}
	removeGroups(number)
	// The host's ends of cables go with the namespaces, a moment later.
	links, err := os.ReadDir("/sys/class/net")
	require.NoError(t, err)
	prefix := fmt.Sprintf("rq%dh", number)
	for _, l := range links {
		if strings.HasPrefix(l.Name(), prefix) {
			_ = tryIP("link", "del", l.Name()) // it may just have gone
		}
	}
	if _, err := os.Stat("/sys/class/net/" + bridgeName(number)); err == nil {
		ip(t, "link", "del", bridgeName(number))
	}
}
