package serve

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitEnd waits until a child has ended, and leaves it as a zombie: it keeps its
// number, which is that of its process group as well, until cmd.Wait.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return // it cannot be waited for: cmd.Wait says why
		}
	}
}
