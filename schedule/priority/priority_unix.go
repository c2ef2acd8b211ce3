//go:build unix && !linux

package priority

import (
	"errors"

	"golang.org/x/sys/unix"
)

func setNice(nice int) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, nice) }

func setIONice(class, int) error {
	return errors.New("cannot be honoured on this platform, only on Linux: leave it out")
}
