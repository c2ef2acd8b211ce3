package priority

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inChild tells that a test runs in a process of its own, since priorities can
// only be lowered.
const inChild = "REQUORUM_PRIORITY_CHILD"

// Promise 4: what is asked for holds for every thread, those that were there and
// those that come later, and for children.
func TestPromise4AllThreads(t *testing.T) {
	for _, ionice := range []string{"idle", "best-effort:7", "best-effort:3"} {
		t.Run(ionice, func(t *testing.T) {
			if os.Getenv(inChild) == "" {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
				cmd.Env = append(os.Environ(), inChild+"=1")
				if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") || strings.Contains(string(out), "no tests to run") {
					t.Fatalf("%v\n%s", err, out)
				}
				return
			}
			before := startThreads(8)
			if err := Set(11, ionice); err != nil {
				t.Fatal(err)
			}
			after := startThreads(8)
			defer close(before)
			defer close(after)
			c, level, err := parse(ionice)
			if err != nil {
				t.Fatal(err)
			}
			tasks, err := os.ReadDir("/proc/self/task")
			if err != nil || len(tasks) < 16 {
				t.Fatalf("%d threads, %v", len(tasks), err)
			}
			for _, task := range tasks {
				tid, err := strconv.Atoi(task.Name())
				if err != nil {
					t.Fatal(err)
				}
				wantPriorities(t, tid, 11, int(c)<<ioprioClassShift|level)
			}
			sleep := exec.CommandContext(t.Context(), "sleep", "60")
			if err := sleep.Start(); err != nil {
				t.Fatal(err)
			}
			wantPriorities(t, sleep.Process.Pid, 11, int(c)<<ioprioClassShift|level)
			if err := sleep.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = sleep.Wait() // it was killed
			// Once more is no error, and neither is what leaves all as it is.
			if err := Set(11, ionice); err != nil {
				t.Error(err)
			}
			if err := Set(0, ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// startThreads starts threads that end when the channel is closed.
func startThreads(n int) chan struct{} {
	end, ready := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread() // a thread of its own, which ends with the goroutine
			ready <- struct{}{}
			<-end
		}()
	}
	for range n {
		<-ready
	}
	return end
}

func wantPriorities(t *testing.T, tid, nice, io int) {
	t.Helper()
	// The system call answers 20 - nice.
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err != nil || 20-got != nice {
		t.Errorf("task %d: nice %d, %v; want %d", tid, 20-got, err, nice)
	}
	got, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioWhoProcess, uintptr(tid), 0)
	if errno != 0 || int(got) != io {
		t.Errorf("task %d: I/O priority %#x, %v; want %#x", tid, got, errno, io)
	}
}
