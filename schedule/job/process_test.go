package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Progress arrives in order, its end in any case, and then the result.
func TestRun(t *testing.T) {
	var heard []int64
	raw, err := run(t.Context(), selfCommand(), childAsked{Do: "count", N: 100_000}, func(phase string, done, total int64) {
		if phase != "count" || total != 100_000 {
			t.Errorf("%s %d of %d", phase, done, total)
		}
		heard = append(heard, done)
	}, 0)
	var result struct{ Counted int64 }
	if err != nil || json.Unmarshal(raw, &result) != nil || result.Counted != 100_000 {
		t.Fatalf("%s, %v", raw, err)
	}
	if n := len(heard); n < 2 || n > 100 || heard[0] != 1 || heard[n-1] != 100_000 {
		t.Errorf("heard %d times: %v", n, heard)
	}
	raw, err = run(t.Context(), selfCommand(), childAsked{Do: "count"}, nil, 0)
	if err != nil || string(raw) != `{"counted":0}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// Promise 3: the limits are set before the work begins.
func TestPromise3LimitsAreSet(t *testing.T) {
	linux(t)
	raw, err := run(t.Context(), selfCommand(), childAsked{Do: "limits"}, nil, 500<<20)
	var seen limitsSeen
	if err != nil || json.Unmarshal(raw, &seen) != nil {
		t.Fatalf("%s, %v", raw, err)
	}
	if seen.Data != 500<<20 || seen.GoLimit != strconv.Itoa(450<<20) {
		t.Errorf("%+v", seen)
	}
}

// Promise 3: beyond the limit it dies, and the error names limit and key; below it
// the collector keeps it running, however much goes by.
func TestPromise3Memory(t *testing.T) {
	linux(t)
	if raced {
		t.Skip("the race detector takes memory of its own, and has words of its own for it")
	}
	const limit = 256 << 20
	most := int64(0)
	_, err := run(t.Context(), selfCommand(), childAsked{Do: "eat", N: 2 << 30}, func(_ string, done, _ int64) { most = max(most, done) }, limit)
	if !overLimit(err) || !strings.Contains(err.Error(), "256 MiB") {
		t.Fatalf("%v", err)
	}
	if most >= limit || most < limit/4 {
		t.Errorf("it had %d bytes with a limit of %d", most, limit)
	}
	_, err = run(t.Context(), selfCommand(), childAsked{Do: "churn", N: 2 << 30}, nil, limit)
	require.NoError(t, err, "within the limit")
	if _, err := run(t.Context(), selfCommand(), childAsked{Do: "shortage"}, nil, limit); !overLimit(err) {
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
			command := selfCommand()
			command.Logger = slog.New(slog.NewTextHandler(&dump, &slog.HandlerOptions{Level: slog.LevelDebug}))
			_, err := run(t.Context(), command, childAsked{Do: "abort"}, nil, c.limit)
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

// A job beside a limit that Go's own runtime does not survive says so in a line,
// wherever it crashes.
func TestPromise3TinyLimits(t *testing.T) {
	linux(t)
	if raced {
		t.Skip("the race detector maps memory of its own")
	}
	failed := 0
	for limit := int64(16); limit <= 96; limit += 8 {
		_, err := run(t.Context(), selfCommand(), childAsked{Do: "eat", N: 64 << 20}, nil, limit<<20)
		if err == nil {
			continue
		}
		failed++
		if !overLimit(err) || len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d MiB: %T: %v", limit, err, err)
		}
	}
	if failed == 0 {
		t.Error("no limit was too low")
	}
}

// Promise 4: however it ends.
func TestPromise4Ends(t *testing.T) {
	for _, test := range []struct{ do, want string }{
		{"fail", "backup x in y: it is broken"},
		{"panic", "panic: what a pity"},
		{"exit", "exit status 7"},
		{"die", "signal: killed"},
		{"garbage", `it answered "hello"`},
	} {
		t.Run(test.do, func(t *testing.T) {
			raw, err := run(t.Context(), selfCommand(), childAsked{Do: test.do}, nil, 0)
			if err == nil || raw != nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "the job's process failed") == (test.do == "fail") {
				t.Errorf("%s, %v", raw, err)
			}
			if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\t") {
				t.Errorf("%d bytes of error: %v", len(err.Error()), err)
			}
		})
	}
	_, err := run(t.Context(), Command{Path: filepath.Join(t.TempDir(), "none")}, childAsked{}, nil, 0)
	require.ErrorIs(t, err, os.ErrNotExist, "no program")
}

// Promise 2: the end of the context is SIGTERM, and the work may tidy up.
func TestPromise2Terminated(t *testing.T) {
	dir := t.TempDir()
	why := errors.New("another attempt took over")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := run(ctx, selfCommand(), childAsked{Do: "wait", Dir: dir}, func(string, int64, int64) { cancel(why) }, 0)
	require.ErrorIs(t, err, why)
	_, err = os.Stat(filepath.Join(dir, "tidied"))
	require.NoError(t, err)
	c := selfCommand()
	c.grace = 200 * time.Millisecond
	ctx, cancel = context.WithCancelCause(t.Context())
	began := time.Now()
	_, err = run(ctx, c, childAsked{Do: "deaf"}, func(string, int64, int64) { cancel(why) }, 0)
	if took := time.Since(began); !errors.Is(err, why) || took > 20*time.Second {
		t.Errorf("one that ignores it: %v after %s", err, took)
	}
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

// Promise 1, where no signal comes: the end of its input is enough.
func TestPromise1InputEnds(t *testing.T) {
	dir := t.TempDir()
	asked, err := json.Marshal(childAsked{Do: "wait", Dir: dir})
	require.NoError(t, err)
	line, err := json.Marshal(order{Request: asked})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], childArgument)
	cmd.Stdin = bytes.NewReader(line)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), errOrphaned.Error()) {
		t.Errorf("%s, %v", out, err)
	}
	if why, err := os.ReadFile(filepath.Join(dir, "tidied")); err != nil || string(why) != errOrphaned.Error() {
		t.Errorf("%s, %v", why, err)
	}
}

// Of a crash the first line counts, of anything else the last one.
func TestKeeper(t *testing.T) {
	k := &keeper{}
	for i := range 100 {
		fmt.Fprintf(k, "%d %s\n", i, strings.Repeat("x", 100))
	}
	if line := k.line(); !strings.HasPrefix(line, "99 x") || k.outOfMemory() {
		t.Errorf("%s", line)
	}
	for _, part := range []string{"fatal ", "error: ", "runtime: out of", " memory\n"} {
		fmt.Fprint(k, part)
	}
	for i := range 1000 {
		fmt.Fprintf(k, "trace %d %s\n", i, strings.Repeat("x", 100))
	}
	if line := k.line(); len(k.text) > kept || line != "fatal error: runtime: out of memory" || !k.outOfMemory() {
		t.Errorf("%d bytes: %s", len(k.text), line)
	}
	k = &keeper{}
	fmt.Fprintln(k, "level=INFO msg=\"out of memory\"")
	if k.outOfMemory() {
		t.Error("a line of the log passes for a crash")
	}
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
