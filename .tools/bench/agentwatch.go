package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lookEvery is how exactly it is known what processes took until when.
const lookEvery = 50 * time.Millisecond

// watcher looks at the processes of members and agents for a while.
type watcher struct {
	members, agents []int // their process IDs
	moments         []moment
	peaks           []peak // of the agents
	children        map[int]*childProcess
}

// moment is the processor time that was taken until then.
type moment struct {
	at     time.Time
	etcd   time.Duration   // of all members
	agents []time.Duration // of each agent, without those that it started
}

// peak is the most memory that a process has had.
type peak struct {
	rss, anon int64 // with and without mapped files
}

// childProcess does one job of an agent.
type childProcess struct {
	first time.Time // when it was seen first
	cpu   time.Duration
	peak  peak
}

// watch looks until ctx ends. A process that is gone is an error.
func (w *watcher) watch(ctx context.Context) error {
	w.peaks, w.children = make([]peak, len(w.agents)), map[int]*childProcess{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := w.look(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *watcher) look() error {
	l := moment{at: time.Now()}
	for _, pid := range w.members {
		cpu, err := cpuOf(pid)
		if err != nil {
			return fmt.Errorf("a member has ended: %w", err)
		}
		l.etcd += cpu
	}
	for i, pid := range w.agents {
		cpu, err := cpuOf(pid)
		if err == nil {
			err = w.peaks[i].raise(pid)
		}
		if err != nil {
			return fmt.Errorf("an agent has ended: %w", err)
		}
		l.agents = append(l.agents, cpu)
		for _, child := range childrenOf(pid) {
			w.lookAtChild(child, l.at)
		}
	}
	w.moments = append(w.moments, l)
	return nil
}

// lookAtChild takes what it can see: it may end at any moment.
func (w *watcher) lookAtChild(pid int, now time.Time) {
	// Until it runs its own program its memory is that of the agent.
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !slices.Contains(strings.Split(string(args), "\x00"), "verify") {
		return
	}
	cpu, err := cpuOf(pid)
	if err != nil {
		return
	}
	c := w.children[pid]
	if c == nil {
		c = &childProcess{first: now}
		w.children[pid] = c
	}
	c.cpu = max(c.cpu, cpu)
	_ = c.peak.raise(pid) // as above
}

func (p *peak) raise(pid int) error {
	rss, anon, err := memoryOf(pid)
	p.rss, p.anon = max(p.rss, rss), max(p.anon, anon)
	return err
}

// spent is the processor time that was taken in a stretch of time.
type spent struct {
	over           time.Duration
	agents         time.Duration // of all agents together
	busiest        time.Duration // of the one that took most
	etcd, children time.Duration
	childPeak      peak // of those that began in it
}

// between is what was spent in a stretch that was watched.
func (w *watcher) between(from, to time.Time) (spent, error) {
	nearest := func(at time.Time) moment {
		i, _ := slices.BinarySearchFunc(w.moments, at, func(m moment, at time.Time) int { return m.at.Compare(at) })
		if i == len(w.moments) || i > 0 && at.Sub(w.moments[i-1].at) < w.moments[i].at.Sub(at) {
			i--
		}
		return w.moments[i]
	}
	if len(w.moments) == 0 {
		return spent{}, errors.New("nothing was watched")
	}
	begin, end := nearest(from), nearest(to)
	s := spent{over: end.at.Sub(begin.at), etcd: end.etcd - begin.etcd}
	for i := range begin.agents {
		cpu := end.agents[i] - begin.agents[i]
		s.agents += cpu
		s.busiest = max(s.busiest, cpu)
	}
	for _, c := range w.children {
		if c.first.Before(from) || c.first.After(to) {
			continue
		}
		s.children += c.cpu
		s.childPeak = peak{max(s.childPeak.rss, c.peak.rss), max(s.childPeak.anon, c.peak.anon)}
	}
	return s, nil
}

// cpuOf is the processor time, user and system, that a process took so far.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return cpuField(string(stat))
}

// clockTick is the unit of times in /proc on every platform of Linux.
const clockTick = 10 * time.Millisecond

// cpuField is user and system time in the kernel's line about a process. The
// program's name stands in brackets and may contain anything.
func cpuField(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is no line about a process", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err, err2)
}

// childrenOf are the processes that one has started and that have not ended.
func childrenOf(pid int) []int {
	var all []int
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, text := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(text); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}
