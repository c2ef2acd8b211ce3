package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/requorum/requorum/store/safedir"
)

const (
	// askTimeout is for a program that only asks.
	askTimeout = 20 * time.Second
	// saidLimit is as much of a program's output as an error shows.
	saidLimit = 1 << 10
	// readLimit is as much of an answer as is read.
	readLimit = 4 << 20
)

// ExitError is how a program ended that did not end well.
type ExitError struct {
	Argv []string
	Code int    // -1 where a signal ended it
	Said string // the end of what it wrote to standard error, in one line
}

func (e *ExitError) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("%s: exit status %d", filepath.Base(e.Argv[0]), e.Code)
	}
	return fmt.Sprintf("%s: exit status %d: %s", filepath.Base(e.Argv[0]), e.Code, e.Said)
}

// runProgram runs a program to its end and gives what it wrote to standard output. It
// gets no input, and is killed with its process group when ctx ends.
func runProgram(ctx context.Context, argv []string) ([]byte, error) {
	// Files and not pipes: a daemon that the program leaves behind keeps them open.
	stdout, err := safedir.Temporary()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdout.Close() }() // it has no name, and was read
	stderr, err := safedir.Temporary()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }()
	if err := run(ctx, argv, stdout, stderr); err != nil {
		return nil, err
	}
	if _, err := stdout.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(stdout, readLimit))
}

// startProgram runs a program that leaves behind what it starts, to its own end. What both
// write is added to a file that others can't read, so that a daemon's output is where it
// can be seen, and be rotated.
func startProgram(ctx context.Context, argv []string, log string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("for the output of %s: %w", argv[0], err)
	}
	defer func() { _ = out.Close() }() // the program's own end says how it went
	if err := run(ctx, argv, out, out); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: it has to end by itself once what it starts runs (setsid PROGRAM &); what it wrote is in %s", err, log)
		}
		return err
	}
	return nil
}

// run runs a program to its end.
func run(ctx context.Context, argv []string, stdout, stderr *os.File) error {
	from, err := stderr.Seek(0, io.SeekEnd) // what is before it is of another time
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("%s did not end in time: %w", argv[0], context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		said, readErr := end(stderr, from)
		return errors.Join(&ExitError{Argv: argv, Code: exit.ExitCode(), Said: said}, readErr)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", argv[0], err)
	}
	return nil
}

// ask is Run for a question: it takes 20 seconds at most.
func ask(ctx context.Context, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return runProgram(ctx, argv)
}

// end is the end of what was written from an offset on, in one line.
func end(f *os.File, from int64) (string, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	text := make([]byte, min(max(0, size-from), saidLimit))
	if _, err := f.ReadAt(text, size-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(text, nil))), " "), nil
}

// findProgram fails where a program is not there. No program at all is there.
func findProgram(argv []string) error {
	if len(argv) == 0 {
		return nil
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return fmt.Errorf("program %s: %w", argv[0], err)
	}
	return nil
}

// statusOf asks a program that says by its exit status whether something runs, as
// init scripts do: 0 where it does, and 3 (or 1, 2) where it doesn't.
func statusOf(ctx context.Context, argv []string) (bool, error) {
	_, err := ask(ctx, argv...)
	var exit *ExitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit) && exit.Code >= 1 && exit.Code <= 3:
		return false, nil
	}
	return false, fmt.Errorf("status: %w", err)
}

// pollInterval is how often something is looked at while it stops or starts.
const pollInterval = 200 * time.Millisecond

// hopelessError is one that no waiting mends.
type hopelessError struct{ error }

func (e *hopelessError) Unwrap() error { return e.error }

// until asks again and again, and gives up with the last reason when ctx ends, or
// when the reason is that a unit has failed.
func until(ctx context.Context, ask func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask()
		var hopeless *hopelessError
		if err == nil || errors.As(err, &hopeless) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
