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
	"syscall"
)

const proc = "/proc"

// fileID names a file whatever the path is called.
type fileID struct{ device, inode uint64 }

// Read looks for those who use a data directory, and a WAL directory where the
// log lies in one of its own.
func Read(dataDir, walDir string) (*Table, error) {
	files, err := memberFiles(dataDir, walDir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("the process table: %w", err)
	}
	t := &Table{}
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
		if err != nil {
			return nil, err
		}
		why, err := writes(pid, files)
		switch {
		case gone(err):
			continue
		case errors.Is(err, fs.ErrPermission):
			t.Hidden++
		case err != nil:
			return nil, fmt.Errorf("the files of process %d: %w", pid, err)
		}
		if why == "" {
			why = startedOn(pid, dataDir)
		}
		if why != "" {
			t.Using = append(t.Using, Process{PID: pid, Name: name(pid), Why: why, Started: started})
		}
	}
	return t, nil
}

// memberFiles are the files that an etcd writes to.
func memberFiles(dataDir, walDir string) (map[fileID]string, error) {
	folders := []string{filepath.Join(dataDir, "member", "snap"), filepath.Join(dataDir, "member", "wal")}
	if walDir != "" {
		folders = append(folders, walDir)
	}
	files := map[fileID]string{}
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() { // else it is gone, or a link to nowhere
				files[idOf(info)] = path
			}
		}
	}
	return files, nil
}

func idOf(info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{st.Dev, st.Ino}
}

// writes names a file that a process has open for writing.
func writes(pid int, files map[fileID]string) (string, error) {
	folder := filepath.Join(proc, strconv.Itoa(pid))
	open, err := os.ReadDir(filepath.Join(folder, "fd"))
	if err != nil {
		return "", err
	}
	for _, e := range open {
		info, err := os.Stat(filepath.Join(folder, "fd", e.Name()))
		if err != nil {
			if gone(err) {
				continue // closed meanwhile
			}
			return "", err
		}
		path, ok := files[idOf(info)]
		if !ok || !info.Mode().IsRegular() {
			continue
		}
		flags, err := os.ReadFile(filepath.Join(folder, "fdinfo", e.Name()))
		if err != nil {
			if gone(err) {
				continue
			}
			return "", err
		}
		if forWriting(flags) {
			return "writes to " + path, nil
		}
	}
	return "", nil
}

func forWriting(fdinfo []byte) bool {
	for line := range bytes.Lines(fdinfo) {
		if text, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(string(text)), 8, 64)
			return err != nil || flags&syscall.O_ACCMODE != syscall.O_RDONLY
		}
	}
	return true // it cannot be told
}

// startedOn tells whether a process was started with a directory as its data
// directory, and is none of our own programs that only read there.
func startedOn(pid int, dataDir string) string {
	folder := filepath.Join(proc, strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return ""
	}
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if strings.HasPrefix(filepath.Base(args[0]), "requorum") && (len(args) < 2 || args[1] != "store") {
		return ""
	}
	for _, dir := range append(dataDirs(args), environment(folder)...) {
		if same(folder, dir, dataDir) {
			return "was started on " + dataDir
		}
	}
	return ""
}

// dataDirs are the values of --data-dir, in each form that Go's flags take.
func dataDirs(args []string) (dirs []string) {
	for i, arg := range args {
		flag, ok := strings.CutPrefix(strings.TrimPrefix(arg, "-"), "-")
		if !ok {
			flag, ok = strings.CutPrefix(arg, "-")
		}
		if !ok {
			continue
		}
		if value, ok := strings.CutPrefix(flag, "data-dir="); ok {
			dirs = append(dirs, value)
		}
		if flag == "data-dir" && i+1 < len(args) {
			dirs = append(dirs, args[i+1])
		}
	}
	return dirs
}

func environment(folder string) []string {
	data, err := os.ReadFile(filepath.Join(folder, "environ"))
	if err != nil {
		return nil
	}
	for _, v := range strings.Split(string(data), "\x00") {
		// A shell that etcd's environment was exported in is not an etcd.
		if dir, ok := strings.CutPrefix(v, "ETCD_DATA_DIR="); ok && strings.HasPrefix(processName(folder), "etcd") {
			return []string{dir}
		}
	}
	return nil
}

// same compares a path as a process calls it with one of ours.
func same(folder, theirs, ours string) bool {
	if theirs == "" {
		return false
	}
	at := filepath.Join(folder, "root", theirs)
	if !filepath.IsAbs(theirs) {
		at = filepath.Join(folder, "cwd", theirs)
	}
	a, errA := os.Stat(at)
	b, errB := os.Stat(ours)
	if errA == nil && errB == nil {
		return os.SameFile(a, b)
	}
	return filepath.Clean(theirs) == filepath.Clean(ours)
}

func name(pid int) string { return processName(filepath.Join(proc, strconv.Itoa(pid))) }

func processName(folder string) string {
	comm, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(comm))
}

// Started is when a process was started, see Process; fs.ErrNotExist where there
// is none, or it has ended and its parent has not asked for it yet.
func Started(pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if gone(err) {
		return 0, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; after it come plain fields, of
	// which the first is the third.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("process %d: %d fields in its stat", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
