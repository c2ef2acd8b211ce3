package priority

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	ioprioWhoProcess = 1  // of one task
	ioprioClassShift = 13 // the class stands above the level
)

func setNice(nice int) error {
	return forTasks(func(tid int) error {
		err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: the process was started with a higher nice already, and only root may lower it", err)
		}
		return err
	})
}

func setIONice(c class, level int) error {
	return forTasks(func(tid int) error {
		if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(tid), uintptr(int(c)<<ioprioClassShift|level)); errno != 0 {
			return errno
		}
		return nil
	})
}

// forTasks calls set for every thread. Linux keeps both priorities by thread,
// and a new one has those of the thread that made it: so the threads are listed
// until there is none that was not set.
func forTasks(set func(tid int) error) error {
	done := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads of this process: %w", err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := set(tid); err != nil && !errors.Is(err, unix.ESRCH) { // it ended meanwhile
				return fmt.Errorf("thread %d: %w", tid, err)
			}
			done[tid], fresh = true, true
		}
	}
	return nil
}
