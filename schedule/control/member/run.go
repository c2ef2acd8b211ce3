package member

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
)

const (
	// askTimeout is for a program that only asks.
	askTimeout = 20 * time.Second
	// saidLimit is as much of a program's output as an error tells.
	saidLimit = 1 << 10
	// readLimit is as much of an answer as is read.
	readLimit = 4 << 20
)

// exitError is how a program ended that did not end well.
type exitError struct {
	argv []string
	code int // -1 where a signal ended it
	said string
}

func (e *exitError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s: exit status %d", filepath.Base(e.argv[0]), e.code)
	}
	return fmt.Sprintf("%s: exit status %d: %s", filepath.Base(e.argv[0]), e.code, e.said)
}

// run runs a program to its end and gives what it wrote to standard output. It
// gets no input, and is killed with its process group when ctx ends.
func run(ctx context.Context, argv []string) ([]byte, error) {
	// Files and not pipes: a daemon that the program leaves behind keeps them open.
	stdout, err := unnamedFile()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdout.Close() }() // it has no name, and was read
	stderr, err := unnamedFile()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s did not end in time: %w", argv[0], context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		said, readErr := end(stderr)
		return nil, errors.Join(&exitError{argv: argv, code: exit.ExitCode(), said: said}, readErr)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	if _, err := stdout.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(stdout, readLimit))
}

// ask is run for a question.
func ask(ctx context.Context, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return run(ctx, argv)
}

func unnamedFile() (*os.File, error) {
	f, err := os.CreateTemp("", "requorum-control-")
	if err != nil {
		return nil, fmt.Errorf("for a program's output: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// end is the end of what was written, in one line.
func end(f *os.File) (string, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	text := make([]byte, min(size, saidLimit))
	if _, err := f.ReadAt(text, size-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(text, nil))), " "), nil
}

// found tells whether a program is there.
func found(argv []string) error {
	if len(argv) == 0 {
		return nil
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return fmt.Errorf("program %s: %w", argv[0], err)
	}
	return nil
}
