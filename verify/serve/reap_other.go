//go:build !linux

package serve

import (
	"time"

	"golang.org/x/sys/unix"
)

// awaitEnd waits until a child has ended, and leaves it as a zombie. What shows it is
// that its process group cannot be signalled any more, or only zombies are in it.
func awaitEnd(pid int) {
	for unix.Kill(-pid, 0) == nil {
		time.Sleep(10 * time.Millisecond)
	}
}
