package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/requorum/requorum/store/safedir"
)

const proc = "/proc"

// fileID names a file whatever the path is called.
type fileID struct{ device, inode uint64 }

// eachProcess looks at all processes but this one. look says why one counts, which is
// empty where it does not, and whether it hid what had to be looked at; one that ends
// meanwhile is passed over.
func eachProcess(look func(pid int) (found Process, hidden bool, err error)) (*ProcessTable, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("the process table: %w", err)
	}
	t := &ProcessTable{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		t.Seen++
		found, hidden, err := look(pid)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if hidden {
			t.Hidden++
		}
		if found.Why != "" {
			found.PID, found.Name = pid, processName(processFolder(pid))
			t.Using = append(t.Using, found)
		}
	}
	return t, nil
}

func processFolder(pid int) string { return filepath.Join(proc, strconv.Itoa(pid)) }

// ProcessesUsing looks for those who use a data directory, and a WAL directory where the
// log lies in one of its own.
func ProcessesUsing(dataDir, walDir string) (*ProcessTable, error) {
	owners, err := ownersOf(dataDir)
	if err != nil {
		return nil, err
	}
	files, err := memberFiles(dataDir, walDir, owners[1:])
	if err != nil {
		return nil, err
	}
	return eachProcess(func(pid int) (found Process, hidden bool, err error) {
		if err := checkRunning(pid); err != nil {
			return found, false, err
		}
		able, err := mayWrite(pid, owners)
		if err != nil {
			return found, false, err
		}
		found.Why, err = writes(pid, files)
		if hidden = errors.Is(err, fs.ErrPermission); err != nil && !hidden {
			return found, false, err
		}
		if found.Why == "" && able {
			found.Why = startedOn(pid, dataDir)
		}
		return found, hidden, nil
	})
}

// memberFiles are the files that an etcd writes to. What a link leads to, or has further
// names (hard links), counts where it belongs to one of the owners of the directory: etcd's
// user could name a file of somebody else, whose process would be taken for the member, and
// stopped. Folders that such a link leads to are an error.
func memberFiles(dataDir, walDir string, owners []string) (map[fileID]string, error) {
	folders := []string{filepath.Join(dataDir, "member", "snap"), filepath.Join(dataDir, "member", "wal")}
	if walDir != "" {
		folders = append(folders, walDir)
	}
	files := map[fileID]string{}
	for _, folder := range folders {
		entries, err := safedir.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			info, err := e.Info()
			link := e.Type() == fs.ModeSymlink
			if link {
				info, err = os.Stat(path)
			}
			if err != nil || !info.Mode().IsRegular() { // it is gone, or a link to nowhere
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && (link || st.Nlink > 1) && !slices.Contains(owners, strconv.FormatUint(uint64(st.Uid), 10)) {
				continue
			}
			files[idOf(info)] = path
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
	folder := processFolder(pid)
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
	return true // it is not known
}

// ownersOf are root and the owners of a data directory: an etcd keeps it to its own
// user, so no other one could run there.
func ownersOf(dataDir string) ([]string, error) {
	owners := []string{"0"}
	for _, path := range []string{dataDir, filepath.Join(dataDir, "member")} {
		info, err := safedir.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			owners = append(owners, strconv.FormatUint(uint64(st.Uid), 10))
		}
	}
	return owners, nil
}

// mayWrite reports whether a process belongs to one of these users: any user can
// start a process whose arguments name a directory. Its real user counts as well as
// the effective one, since programs that run as root take arguments of everybody.
func mayWrite(pid int, owners []string) (bool, error) {
	status, err := os.ReadFile(filepath.Join(processFolder(pid), "status"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "Uid:"); ok {
			users := strings.Fields(text) // real, effective, saved, of the file system
			return len(users) < 2 || slices.Contains(owners, users[0]) && slices.Contains(owners, users[1]), nil
		}
	}
	return true, nil // it is not known
}

// startedOn reports whether a process was started with a directory as its data
// directory, and is none of our own programs that only read there.
func startedOn(pid int, dataDir string) string {
	folder := processFolder(pid)
	line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return ""
	}
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if strings.HasPrefix(filepath.Base(args[0]), "requorum") && (len(args) < 2 || args[1] != "store") {
		return ""
	}
	for _, dir := range append(flagValues(args, "data-dir"), environment(folder, "ETCD_DATA_DIR")...) {
		if same(folder, dir, dataDir) {
			return "was started on " + dataDir
		}
	}
	return ""
}

// startsNew reports whether a process was started as the member of a new cluster.
func startsNew(pid int) bool {
	folder := processFolder(pid)
	line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return false // it has ended
	}
	values := append(environment(folder, "ETCD_INITIAL_CLUSTER_STATE"), flagValues(strings.Split(string(line), "\x00"), "initial-cluster-state")...)
	return len(values) > 0 && values[len(values)-1] == "new" // a flag counts more than the environment
}

// flagValues are the values of a flag, in each form that Go's flags take.
func flagValues(args []string, name string) (values []string) {
	for i, arg := range args {
		flag, ok := strings.CutPrefix(strings.TrimPrefix(arg, "-"), "-")
		if !ok {
			flag, ok = strings.CutPrefix(arg, "-")
		}
		if !ok {
			continue
		}
		if value, ok := strings.CutPrefix(flag, name+"="); ok {
			values = append(values, value)
		}
		if flag == name && i+1 < len(args) {
			values = append(values, args[i+1])
		}
	}
	return values
}

func environment(folder, name string) []string {
	data, err := os.ReadFile(filepath.Join(folder, "environ"))
	if err != nil {
		return nil
	}
	for _, v := range strings.Split(string(data), "\x00") {
		// A shell that etcd's environment was exported in is not an etcd.
		if dir, ok := strings.CutPrefix(v, name+"="); ok && strings.HasPrefix(processName(folder), "etcd") {
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

func processName(folder string) string {
	comm, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(comm))
}

// checkRunning returns fs.ErrNotExist if a process does not exist, or has ended and its
// parent has not waited for it yet.
func checkRunning(pid int) error {
	data, err := os.ReadFile(filepath.Join(processFolder(pid), "stat"))
	if gone(err) {
		return fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	// The name, in parentheses, may hold anything; the state is the field after it.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) == 0 {
		return fmt.Errorf("process %d: its stat has no state", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	return nil
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

const (
	// commLimit is as much of a program's name as the kernel keeps.
	commLimit = 15
	// mayPtrace is the capability to which a process table hides nothing.
	mayPtrace = 1 << 19
)

// ProcessesNamed looks for those that run a program of a name, by what the kernel calls
// them or by their first argument. Processes of other containers of the host count
// as well: they stand in the same table.
func ProcessesNamed(program string) (*ProcessTable, error) {
	why, err := incomplete()
	if err != nil {
		return nil, err
	}
	t, err := eachProcess(func(pid int) (found Process, hidden bool, err error) {
		if err = checkRunning(pid); err == nil {
			found.Why, err = runs(pid, program)
		}
		if errors.Is(err, fs.ErrPermission) {
			return found, true, nil
		}
		return found, false, err
	})
	if err != nil {
		return nil, err
	}
	t.Incomplete = why
	return t, nil
}

// runs says by what a process is known to run a program; empty where it does not.
func runs(pid int, program string) (string, error) {
	folder := processFolder(pid)
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

// incomplete says why processes may be missing in the table, not only their files;
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

// capable reports whether this process has a capability now.
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
