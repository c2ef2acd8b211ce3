package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// usage is what processes took.
type usage struct {
	wall time.Duration
	cpu  time.Duration // user and system
	rss  int64         // the highest resident set, in bytes, mapped files included
	anon int64         // the same without mapped files
}

// then adds what ran afterwards.
func (u usage) then(next usage) usage {
	return usage{wall: u.wall + next.wall, cpu: u.cpu + next.cpu, rss: max(u.rss, next.rss), anon: max(u.anon, next.anon)}
}

// beside adds what ran at the same time. The peaks are added up: an upper
// bound, as they need not have come together.
func (u usage) beside(other usage) usage {
	return usage{wall: max(u.wall, other.wall), cpu: u.cpu + other.cpu, rss: u.rss + other.rss, anon: u.anon + other.anon}
}

// sampleEvery is short beside the second or more that is measured, and costs
// less than a thousandth of a core.
const sampleEvery = 20 * time.Millisecond

// measure runs one program to its end. It may get variables beside a bare
// environment, so that nothing in the caller's decides how it behaves.
func measure(ctx context.Context, env []string, program string, args ...string) (usage, error) {
	u, _, err := measureOutput(ctx, env, program, args...)
	return u, err
}

// measureOutput also gives what the program wrote to its standard output, and
// gives it beside an error, too.
func measureOutput(ctx context.Context, env []string, program string, args ...string) (usage, []byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return usage{}, nil, err
	}
	ended, peak := make(chan struct{}), make(chan usage)
	go func() { peak <- sample(cmd.Process.Pid, ended) }()
	err := cmd.Wait()
	wall := time.Since(start)
	close(ended)
	u := <-peak
	u.wall = wall
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	// Linux starts a child's count at that of the process that forked it, so
	// the count holds only above that; below, the samples are what there is.
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, nil, fmt.Errorf("own memory: %w", err)
	}
	if counted := maxRSS(cmd.ProcessState.SysUsage()); counted > maxRSS(&own) {
		u.rss = max(u.rss, counted)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, lastLines(out.String()+errs.String(), 5))
	}
	return u, out.Bytes(), err
}

// output runs a program outside of any measurement.
func output(ctx context.Context, program string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, lastLines(string(exit.Stderr), 5))
	}
	return out, err
}

func maxRSS(sys any) int64 {
	if r, ok := sys.(*syscall.Rusage); ok {
		return int64(r.Maxrss) * 1024 // Linux counts in KiB
	}
	return 0
}

// sample watches a process until it has ended, and returns the most memory
// that it had.
func sample(pid int, ended <-chan struct{}) usage {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var peak usage
	for {
		select {
		case <-ended:
			return peak
		case <-tick.C:
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				continue // it has ended
			}
			peak.rss = max(peak.rss, statusField(string(status), "VmHWM:"))
			peak.anon = max(peak.anon, statusField(string(status), "RssAnon:"))
		}
	}
}

// statusField is one amount of memory in the kernel's description of a
// process, in bytes; 0 when it is not there.
func statusField(status, name string) int64 {
	_, rest, found := strings.Cut(status, "\n"+name)
	if !found {
		return 0
	}
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib * 1024
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// together runs several measurements at once.
func together(runs ...func() (usage, error)) (usage, error) {
	type result struct {
		usage usage
		err   error
	}
	results := make(chan result)
	start := time.Now()
	for _, run := range runs {
		go func() {
			u, err := run()
			results <- result{u, err}
		}()
	}
	var sum usage
	var errs []error
	for range runs {
		r := <-results
		sum = sum.beside(r.usage)
		errs = append(errs, r.err)
	}
	sum.wall = time.Since(start)
	return sum, errors.Join(errs...)
}
