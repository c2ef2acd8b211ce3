package job

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the command writes is returned, and the environment's settings are not its own.
func TestRun(t *testing.T) {
	t.Setenv("REQUORUM_REPO", "/elsewhere")
	out, err := RunCommand(t.Context(), selfCommand("report", "whole", 0))
	require.NoError(t, err)
	require.Equal(t, "whole \n", string(out))
	out, err = RunCommand(t.Context(), selfCommand("fail", "", 0))
	require.EqualError(t, err, "backup x in y: it is broken")
	require.Equal(t, "half a report\n", string(out))
}

// Promise 3: beyond the limit it dies, and the error names limit and key; below it
// the collector keeps it running, however much goes by.
func TestPromise3Memory(t *testing.T) {
	linux(t)
	if raced {
		t.Skip("the race detector takes memory of its own, and has words of its own for it")
	}
	const limit = 256 << 20
	_, err := RunCommand(t.Context(), selfCommand("eat", "", limit))
	if !overLimit(err) || !strings.Contains(err.Error(), "256 MiB") {
		t.Fatalf("%v", err)
	}
	_, err = RunCommand(t.Context(), selfCommand("churn", "", limit))
	require.NoError(t, err, "within the limit")
	if _, err := RunCommand(t.Context(), selfCommand("shortage", "", limit)); !overLimit(err) {
		t.Errorf("the system's own error: %v", err)
	}
}

// Promise 3: a crash that does not say why is perhaps for want of memory where
// there is a limit; and no error has more than a line of what Go writes then.
func TestPromise3CrashUnderALimit(t *testing.T) {
	linux(t)
	if raced {
		t.Skip("the race detector maps memory of its own")
	}
	for _, c := range []struct {
		name   string
		limit  int64
		likely bool
	}{
		{"a limit", 512 << 20, true},
		{"no limit", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var dump bytes.Buffer
			command := selfCommand("abort", "", c.limit)
			command.Logger = slog.New(slog.NewTextHandler(&dump, &slog.HandlerOptions{Level: slog.LevelDebug}))
			_, err := RunCommand(t.Context(), command)
			if err == nil || overLimit(err) != c.likely {
				t.Fatalf("%T: %v", err, err)
			}
			text := err.Error()
			if c.likely != strings.Contains(text, "perhaps") || !strings.Contains(text, "SIGABRT") {
				t.Errorf("%s", text)
			}
			if len(text) > 400 || strings.ContainsAny(text, "\n\t") || strings.Contains(text, "goroutine") || strings.Contains(text, ".go:") {
				t.Errorf("more than a line of a crash: %q", text)
			}
			if !strings.Contains(dump.String(), "goroutine") {
				t.Errorf("the log of details has no traces: %s", dump.String())
			}
		})
	}
}

// Promise 4: however it ends.
func TestPromise4Ends(t *testing.T) {
	for _, test := range []struct{ do, want string }{
		{"fail", "backup x in y: it is broken"},
		{"panic", "panic: what a pity"},
		{"exit", "exit status 7"},
		{"die", "signal: killed"},
	} {
		t.Run(test.do, func(t *testing.T) {
			_, err := RunCommand(t.Context(), selfCommand(test.do, "", 0))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "the job's process failed") == (test.do == "fail") {
				t.Errorf("%v", err)
			}
			if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\t") {
				t.Errorf("%d bytes of error: %v", len(err.Error()), err)
			}
		})
	}
	_, err := RunCommand(t.Context(), Command{Path: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist, "no program")
}

// Promise 2: the end of the context is SIGTERM, and the command may tidy up.
func TestPromise2Terminated(t *testing.T) {
	dir := t.TempDir()
	why := errors.New("another attempt took over")
	_, err := RunCommand(endsWithChild(t, dir, why), selfCommand("wait", dir, 0))
	require.ErrorIs(t, err, why)
	_, err = os.Stat(filepath.Join(dir, "tidied"))
	require.NoError(t, err)
	dir = t.TempDir()
	c := selfCommand("deaf", dir, 0)
	c.grace = 200 * time.Millisecond
	began := time.Now()
	_, err = RunCommand(endsWithChild(t, dir, why), c)
	if took := time.Since(began); !errors.Is(err, why) || took > 20*time.Second {
		t.Errorf("one that ignores it: %v after %s", err, took)
	}
}

// endsWithChild is a context that ends once a child has written its process ID.
func endsWithChild(t *testing.T, dir string, why error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for ctx.Err() == nil {
			if raw, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil && len(raw) > 0 {
				cancel(why)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return ctx
}

// Promise 1: it does not outlive its parent, and tidies up first.
func TestPromise1ParentKilled(t *testing.T) {
	dir := t.TempDir()
	parent := exec.Command(os.Args[0], parentArgument, dir)
	require.NoError(t, parent.Start())
	pid := 0
	eventually(t, "the child starts", func() bool {
		raw, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid, _ = strconv.Atoi(string(raw))
		return pid > 0
	})
	require.NoError(t, syscall.Kill(pid, 0), "the child is not there")
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	eventually(t, "the child tidies up", func() bool {
		_, err := os.Stat(filepath.Join(dir, "tidied"))
		return err == nil
	})
	eventually(t, "the child ends", func() bool { return !alive(pid) })
}

// overLimit says that an error names the limit.
func overLimit(err error) bool {
	return err != nil && strings.Contains(err.Error(), "job-memory allows")
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return runtime.GOOS != "linux" && syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") // nobody may have waited for it yet
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within five minutes", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func linux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("limits of memory are Linux's")
	}
}
