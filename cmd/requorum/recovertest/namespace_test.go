package recovertest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// namespace is the name of a network namespace: a host, as far as processes and
// packets are concerned.
type namespace string

// command runs a program in the namespace; its process is the program's own.
func (n namespace) command(program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", string(n), program}, args...)...)
}

// start appends what the program prints to the file log. It returns when the process has
// entered the namespace and become its program: who looks for the host's processes before
// would not find it.
func (n namespace) start(t testing.TB, log string, env []string, program string, args ...string) *storetest.Process {
	t.Helper()
	cmd := n.command(program, args...)
	cmd.Env = env
	p, err := storetest.StartProcess(cmd, log)
	require.NoError(t, err, "%s on host %s", program, n)
	for start := time.Now(); p.Running(); time.Sleep(time.Millisecond) {
		now, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		if err != nil || filepath.Base(now) != "ip" {
			break
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("process %d does not enter namespace %s", cmd.Process.Pid, n)
		}
	}
	return p
}

// processes are those in the namespace that have not ended, zombies left out.
func (n namespace) processes(t testing.TB) []int {
	t.Helper()
	own, err := os.Stat(filepath.Join(netnsDir, string(n)))
	require.NoError(t, err)
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var all []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A zombie has no namespace any more.
		its, err := os.Stat(filepath.Join("/proc", e.Name(), "ns", "net"))
		if err == nil && os.SameFile(own, its) {
			all = append(all, pid)
		}
	}
	return all
}

// running are the processes of a program.
func (n namespace) running(t testing.TB, program string) []int {
	t.Helper()
	var all []int
	for _, pid := range n.processes(t) {
		if path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); err == nil && strings.TrimSuffix(path, " (deleted)") == program {
			all = append(all, pid)
		}
	}
	return all
}

// killAll is the host's power cut.
func (n namespace) killAll(t testing.TB) {
	t.Helper()
	n.kill(t, n.processes)
}

// kill is kill -9 of those that find finds, and returns when it finds none, and
// those have ended with all that they had open.
func (n namespace) kill(t testing.TB, find func(testing.TB) []int) {
	t.Helper()
	ending := map[int]bool{}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		all := find(t)
		for _, pid := range all {
			ending[pid] = true
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended
			}
		}
		for pid := range ending {
			if ended(pid) {
				delete(ending, pid)
			}
		}
		if len(all) == 0 && len(ending) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes %v of namespace %s do not end", slices.Collect(maps.Keys(ending)), n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// ended reports whether nothing is left of a process but what its parent asks for. A
// process whose first thread has ended is in no namespace any more, and keeps its
// files and locks until the last one has.
func ended(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return len(threads) <= 1 && strings.HasPrefix(state, "Z")
}
