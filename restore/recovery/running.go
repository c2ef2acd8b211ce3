package recovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/requorum/requorum/restore"
)

// RunningError says that a member runs on a directory. It is a restore.ErrInUse.
type RunningError struct {
	Survivor string
	DataDir  string
	Process  string // such as "etcd, process 1234"; empty where it cannot be told
	Err      error
}

func (e *RunningError) Error() string {
	who := e.Process
	if who == "" {
		who = "a process that cannot be seen from here (another user's, or another container's)"
	}
	return fmt.Sprintf("%s still runs on %s (%s): %v: a recovery looks at stopped members only; if the cluster still has its quorum, replace single members instead", e.Survivor, e.DataDir, who, e.Err)
}

func (e *RunningError) Unwrap() error { return e.Err }

// checkIdle fails with a *RunningError while a member runs on the directory.
func checkIdle(s Survivor) error {
	err := restore.CheckMemberIdle(s.DataDir, s.WALDir)
	if errors.Is(err, restore.ErrInUse) {
		return &RunningError{Survivor: s.Name, DataDir: s.DataDir, Process: holder(s), Err: err}
	}
	if err != nil {
		return fmt.Errorf("look whether %s still runs: %w", s.Name, err)
	}
	return nil
}

// holder names the process that has the member's files open. It can be told only
// of processes that may be looked at; of others nothing is said.
func holder(s Survivor) string {
	var held []os.FileInfo
	logs, _ := filepath.Glob(filepath.Join(s.logDir(), "*.wal")) // a pattern that is none finds nothing
	for _, path := range append(logs, filepath.Join(s.snapDir(), "db")) {
		if info, err := os.Stat(path); err == nil {
			held = append(held, info)
		}
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return ""
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		folder := filepath.Join("/proc", p.Name(), "fd")
		open, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, fd := range open {
			info, err := os.Stat(filepath.Join(folder, fd.Name()))
			if err != nil {
				continue
			}
			for _, file := range held {
				if os.SameFile(file, info) {
					name, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "comm")) // it may have ended
					return fmt.Sprintf("%s, process %d", strings.TrimSpace(string(name)), pid)
				}
			}
		}
	}
	return ""
}
