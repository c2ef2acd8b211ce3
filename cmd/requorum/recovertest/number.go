package recovertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

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
