package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/safedir"
)

// killAfter is how long a store may take to end when asked to, after which it is
// killed: longer than it takes by itself (20 s).
const killAfter = 25 * time.Second

// bundled is a store that this process starts. It outlives this process.
type bundled struct {
	evidence
	StoreMember
	owner     *restore.Owner // nil: as this process
	pidFile   string
	killAfter time.Duration
}

func newStore(m MemberConfig, e evidence, stateDir string) (*bundled, error) {
	s := &bundled{evidence: e, StoreMember: m.Store, pidFile: filepath.Join(stateDir, m.Name+".pid"), killAfter: killAfter}
	if m.Store.User != "" {
		owner, err := restore.ParseOwner(m.Store.User)
		if err != nil {
			return nil, fmt.Errorf("member.store.user: %w", err)
		}
		s.owner = &owner
	}
	return s, nil
}

// pid is what the pid file holds.
type pid struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // see Process: no other one has both
}

// Check finds the program, reads the pid file, and looks at the log file.
func (s *bundled) Check(context.Context) error {
	_, err := s.own()
	info, logErr := safedir.Stat(s.LogFile)
	if errors.Is(logErr, fs.ErrNotExist) {
		logErr = nil
	} else if logErr == nil && !info.Mode().IsRegular() {
		logErr = fmt.Errorf("log-file: %s is no regular file: name one, or leave it out", s.LogFile)
	}
	return errors.Join(findProgram(s.Command), logErr, err)
}

// own is the process that was started here; nil where it has ended.
func (s *bundled) own() (*pid, error) {
	data, err := os.ReadFile(s.pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p pid
	if err := json.Unmarshal(data, &p); err != nil || p.PID <= 0 {
		return nil, fmt.Errorf("pid file %s cannot be read: with the store stopped, remove it", s.pidFile)
	}
	started, err := processStarted(p.PID)
	if errors.Is(err, fs.ErrNotExist) || err == nil && started != p.Started {
		return nil, nil
	}
	return &p, err
}

// Stopped asks for the process that was started here, then the locks and the process table.
func (s *bundled) Stopped(context.Context) error {
	p, err := s.own()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if p != nil {
		return fmt.Errorf("%w: process %d was started for it", ErrRuns, p.PID)
	}
	return s.stopped()
}

// Stop sends SIGTERM, and after killAfter SIGKILL.
func (s *bundled) Stop(ctx context.Context) error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, s.killAfter)
	defer cancel()
	if err := waitStopped(patient, s.Stopped); err == nil || ctx.Err() != nil {
		return err
	}
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return waitStopped(ctx, s.Stopped)
}

// signal reaches the process that was started here, and others of the same
// program that use the member's files, such as one that was started by hand.
func (s *bundled) signal(sig os.Signal) error {
	var all []pid
	own, err := s.own()
	if err != nil {
		return err
	}
	if own != nil {
		all = append(all, *own)
	}
	table, err := ProcessesUsing(s.dataDir, s.walDir)
	if err != nil {
		return err
	}
	program := filepath.Base(s.Command[0])
	for _, p := range table.Using {
		// The kernel keeps 15 letters of a name.
		if p.Name == program[:min(len(program), 15)] {
			all = append(all, pid{p.PID, p.Started})
		}
	}
	for _, p := range all {
		if err := p.signal(sig); err != nil {
			return fmt.Errorf("%v to process %d: %w", sig, p.PID, err)
		}
	}
	return nil
}

// signal never reaches another process that got the number meanwhile: the handle
// is taken before the number is compared.
func (p pid) signal(sig os.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	started, err := processStarted(p.PID)
	if errors.Is(err, fs.ErrNotExist) || err == nil && started != p.Started {
		return nil
	}
	if err == nil {
		err = handle.Signal(sig)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Start starts the process, unless there is one.
func (s *bundled) Start(ctx context.Context) error {
	if err := s.running(); !errors.Is(err, errNotRunning) {
		return err
	}
	own, err := s.own()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	if own == nil {
		if err := s.spawn(ended); err != nil {
			return fmt.Errorf("start the member: %w", err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-ended:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	return until(ctx, s.running)
}

// spawn starts the process in a session of its own and says when it ended.
func (s *bundled) spawn(ended chan<- error) error {
	// It may lie in a folder of the store's user.
	log, err := safedir.Append(s.LogFile)
	if err != nil {
		return fmt.Errorf("for its output: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	// Without a context: it outlives this call, and this process.
	cmd := exec.Command(s.Command[0], s.Command[1:]...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.Env = []string{}
	for _, v := range inherited {
		if !strings.HasPrefix(v, "NOTIFY_SOCKET=") { // it is not this process's supervisor that it would notify
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.owner != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.owner.UID), Gid: uint32(s.owner.GID)}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		err := cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		ended <- fmt.Errorf("process %d has ended (%w): its output is in %s", cmd.Process.Pid, err, s.LogFile)
	}()
	started, err := processStarted(cmd.Process.Pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended, which is reported
	}
	if err != nil {
		return err
	}
	return s.remember(pid{cmd.Process.Pid, started})
}

func (s *bundled) remember(p pid) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return safedir.Replace(s.pidFile, append(data, '\n'))
}
