package serve

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// Promise 4: a cancellation in any phase leaves neither a folder nor a process.
func TestPromise4CancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{PhaseBuild, PhaseExpect, PhaseBoot, PhaseFirstRead, PhaseServe} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("enough")
			dir := filepath.Join(t.TempDir(), "a", "b")
			command, pid := noting(t)
			// One member alone is through with all phases before it is cancelled in its boot.
			check, err := Drill(ctx, plain(t), DrillOptions{ScratchDir: dir, Members: 3, Command: command, Progress: func(p string, _, _ int64) {
				if p == phase {
					if p == PhaseBoot { // when the members are starting
						go func() {
							for !noted(command) && ctx.Err() == nil {
								time.Sleep(5 * time.Millisecond)
							}
							time.Sleep(200 * time.Millisecond) // so that some have begun to boot
							cancel(stop)
						}()
						return
					}
					cancel(stop)
				}
			}})
			require.ErrorIs(t, err, stop, "%+v", check)
			_, err = os.Stat(filepath.Dir(dir))
			require.ErrorIs(t, err, os.ErrNotExist, "the folder that was made is there")
			if phase == PhaseBuild || phase == PhaseExpect {
				return // before there are members
			}
			require.ErrorIs(t, syscall.Kill(pid(), 0), syscall.ESRCH, "the members live")
		})
	}
}

// Promise 4: a drill that is killed is cleaned up by the next one, which leaves
// a drill alone that runs.
func TestPromise4KilledDrillIsRemovedByTheNext(t *testing.T) {
	t.Parallel()
	image := plain(t)
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, drillArgument, image.Name(), dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "serving\n" {
		t.Fatalf("%q %v %s", line, err, stderr.String())
	}
	folders := func() (list []string) {
		all, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range all {
			if walreplay.IsScratch(e.Name()) {
				list = append(list, e.Name())
			}
		}
		return list
	}
	again := func() {
		check, err := Drill(t.Context(), image, DrillOptions{ScratchDir: dir, Members: 1})
		if err != nil || check.Status != report.Passed {
			t.Fatalf("%v %s %s %v", err, check.Status, check.Reason, check.Findings)
		}
	}
	if len(folders()) != 1 {
		t.Fatalf("the running drill has the folders %v", folders())
	}
	again()
	if len(folders()) != 1 {
		t.Fatalf("beside a running drill another one left %v", folders())
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	// Its members end with it, and only then the folder is free.
	db := filepath.Join(dir, folders()[0], "m1", "member", "snap", "db")
	for deadline := time.Now().Add(10 * time.Second); locked(t, db); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the members of a drill that was killed live on")
		}
	}
	time.Sleep(50 * time.Millisecond)
	again()
	if len(folders()) != 0 {
		t.Errorf("the killed drill left %v", folders())
	}
}

// locked reports whether a process has a database open.
func locked(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}
