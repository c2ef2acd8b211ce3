package processes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// commLimit is as much of a program's name as the kernel keeps.
	commLimit = 15
	// mayPtrace is the capability to which a process table hides nothing.
	mayPtrace = 1 << 19
)

// Named looks for those that run a program of a name, by what the kernel calls
// them or by their first argument. Processes of other containers of the host count
// as well: they stand in the same table.
func Named(program string) (*Table, error) {
	t := &Table{}
	var err error
	if t.Incomplete, err = incomplete(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("the process table: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		t.Seen++
		started, err := Started(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		why := ""
		if err == nil {
			why, err = runs(pid, program)
		}
		switch {
		case gone(err):
			continue
		case errors.Is(err, fs.ErrPermission):
			t.Hidden++
		case err != nil:
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if why != "" {
			t.Using = append(t.Using, Process{PID: pid, Name: name(pid), Why: why, Started: started})
		}
	}
	return t, nil
}

// runs tells by what a process is known to run a program; empty where it does not.
func runs(pid int, program string) (string, error) {
	folder := filepath.Join(proc, strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil {
		return "", err
	}
	line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return "", err
	}
	first, _, _ := bytes.Cut(line, []byte{0})
	if filepath.Base(string(first)) == program {
		return "runs " + program, nil
	}
	called := strings.TrimSuffix(string(comm), "\n")
	if called == program {
		return "is called " + program, nil
	}
	// A name that was cut off may be another program's.
	if len(program) > commLimit && called == program[:commLimit] && mayBe(folder, program) {
		return "is called " + called + ", as " + program + " would be", nil
	}
	return "", nil
}

// mayBe is false where a process's file says that it runs another program.
func mayBe(folder, program string) bool {
	exe, err := os.Readlink(filepath.Join(folder, "exe"))
	return err != nil || filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == program
}

// incomplete tells why processes may be missing in the table, not only their files;
// empty where all are there: a proc that is mounted with hidepid has no entries of
// other users' processes for somebody without the right to trace them.
func incomplete() (string, error) {
	mounts, err := os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return "", fmt.Errorf("how the process table is mounted: %w", err)
	}
	option := ""
	for line := range strings.Lines(string(mounts)) {
		// ID, parent, device, root, mount point, options, …, -, type, source, its options
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 6 || len(kind) < 3 || place[4] != proc || kind[0] != "proc" {
			continue
		}
		option = "" // the last one mounted there is the one that is seen
		for _, o := range strings.Split(place[5]+","+kind[2], ",") {
			if value, ok := strings.CutPrefix(o, "hidepid="); ok && value != "0" && value != "off" {
				option = o
			}
		}
	}
	if option == "" {
		return "", nil
	}
	able, err := capable(mayPtrace)
	if err != nil || able {
		return "", err
	}
	return proc + " is mounted with " + option + ", and hides the processes of others from this one", nil
}

// capable tells whether this process has a capability now.
func capable(bit uint64) (bool, error) {
	status, err := os.ReadFile(filepath.Join(proc, "self", "status"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return set&bit != 0, err
		}
	}
	return false, errors.New("its status names no capabilities")
}
