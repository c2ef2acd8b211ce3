package recovertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// namespace is the name of a network namespace: a host, as far as processes and
// packets are concerned.
type namespace string

// command runs a program in the namespace; its process is the program's own.
func (n namespace) command(program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", string(n), program}, args...)...)
}

// processes are those in the namespace that have not ended, zombies left out.
func (n namespace) processes(t testing.TB) []int {
	t.Helper()
	own, err := os.Stat(filepath.Join(netnsDir, string(n)))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
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

// kill is kill -9 of those that find finds, and returns when it finds none.
func (n namespace) kill(t testing.TB, find func(testing.TB) []int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		all := find(t)
		if len(all) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes %v of namespace %s do not end", all, n)
		}
		for _, pid := range all {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
}
