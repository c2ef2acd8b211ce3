package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// watchTree looks at a process and all that it has started, members of etcd excepted,
// until ended is closed, and gives the most memory that all of them had at one moment.
func watchTree(root int, ended <-chan struct{}) peak {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var most peak
	for {
		now := peak{}
		now.addTree(root)
		most = peak{max(most.rss, now.rss), max(most.anon, now.anon)}
		select {
		case <-ended:
			return most
		case <-tick.C:
		}
	}
}

// addTree adds what a process has now, and its children. Any of them may end at
// any moment.
func (p *peak) addTree(pid int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || strings.HasPrefix(string(status), "Name:\tetcd\n") {
		return
	}
	p.rss += statusField(string(status), "VmRSS:")
	p.anon += statusField(string(status), "RssAnon:")
	for _, child := range childrenOf(pid) {
		p.addTree(child)
	}
}

// runningOn are the processes of etcd that have one of these data directories: those
// that others have started.
func runningOn(dataDirs ...string) ([]int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var all []int
	for _, path := range lines {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(data), "\x00")
		if filepath.Base(args[0]) != "etcd" {
			continue
		}
		for i, arg := range args[1:] {
			for _, dir := range dataDirs {
				if arg != dir || args[i] != "--data-dir" {
					continue
				}
				pid, err := strconv.Atoi(strings.Split(path, "/")[2])
				if err != nil {
					return nil, err
				}
				all = append(all, pid)
			}
		}
	}
	return all, nil
}

// kill kills processes, and waits until they are gone.
func kill(pids ...int) error {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // seen below
	}
	for _, pid := range pids {
		for deadline := time.Now().Add(startWait); alive(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d is not gone after %s", pid, startWait)
			}
		}
	}
	return nil
}

// alive reports whether a process runs: one that nobody has waited for has ended.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := strings.TrimSpace(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
