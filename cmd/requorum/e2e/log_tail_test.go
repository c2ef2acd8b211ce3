package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// TestLogOverwrittenTail is the first half of point 4 of what the log must show,
// and promise 6: what a cut-off leader has in its log, and the others overwrite
// when it rejoins, never reaches the archive; neither where the only archiver is
// the one beside it, nor while its disk is so slow that it applies before it has
// saved.
func TestLogOverwrittenTail(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestPromise1OverwrittenTail of walreplay/archive has the rule")
	}
	for _, version := range storetest.Some("3.7") {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s-slow-%v", version, slow), func(t *testing.T) {
				t.Parallel() // much of it waits
				rounds := short(1, 5)
				for range rounds {
					overwriteTail(t, version, slow)
				}
				figure(t, "tails overwritten", rounds)
			})
		}
	}
}

func overwriteTail(t *testing.T, version string, slow bool) {
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	cut := c.Leader(t)
	rest := without(3, cut)
	archivers := []*archiver{u.archive(t, c, cut, repo)}
	_, err := c.Client(t).Put(t.Context(), "/before", "the cut")
	require.NoError(t, err)
	u.awaitArchived(t, repo, applied(t, c, cut))

	lost := c.CutOffWriting(t, cut)
	survivors := c.Client(t, rest...)
	storetest.Eventually(t, "the others have a leader", func() error { _, err := survivors.Put(t.Context(), "/after/first", "x"); return err })
	for i := range 200 {
		_, err = survivors.Put(t.Context(), fmt.Sprintf("/after/%03d", i), "the cut")
		require.NoError(t, err)
	}
	if !slow { // otherwise the one beside the cut-off member stays alone
		for _, i := range rest {
			archivers = append(archivers, u.archive(t, c, i, repo))
		}
	}
	var disk *slowDisk
	if slow {
		disk = startSlowDisk(t, c, cut, 150*time.Millisecond)
	}
	c.Rejoin(cut)
	writers := []*storetest.Writer{storetest.StartWriter(t, survivors, writerPrefix)}
	writers[0].WaitFor(t, short(30, 300))
	if slow {
		storetest.Eventually(t, "the slow disk holds syncs up while the log is overwritten", func() error {
			if n := disk.held(t); n < short(10, 50) {
				return fmt.Errorf("%d so far", n)
			}
			return nil
		})
		disk.Stop(time.Minute)
	}
	acks := acknowledged(writers)
	c.WaitReady(t)
	if _, err := c.Client(t, cut).Get(t.Context(), "/after/000"); err != nil { // it has caught up
		t.Fatal(err)
	}
	covered := u.awaitArchived(t, repo, applied(t, c, cut))
	expectOneRange(t, u.list(t, repo))
	expectNever(t, repo, covered.Timeline, lost)
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	for _, a := range archivers {
		a.stop(t)
	}
}

// slowDisk makes each sync of a member's files last longer, by the kernel's own doing: a
// debugger holds each call up. It takes strace, and the right to trace processes.
type slowDisk struct {
	*storetest.Process
	trace string
}

func startSlowDisk(t *testing.T, c *storetest.Cluster, member int, delay time.Duration) *slowDisk {
	t.Helper()
	s, pid := &slowDisk{trace: filepath.Join(t.TempDir(), "trace")}, c.Pid(member)
	var err error
	s.Process, err = storetest.StartProcess(exec.Command(storetest.Program(t, "strace"), "-f", "-o", s.trace, "-p", strconv.Itoa(pid),
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter="+strconv.FormatInt(delay.Microseconds(), 10)), s.trace+".log")
	require.NoError(t, err)
	t.Cleanup(func() { s.Stop(time.Minute) })
	for deadline := time.Now().Add(2 * time.Minute); !traced(pid); time.Sleep(20 * time.Millisecond) {
		needs(t, time.Now().Before(deadline), "strace did not get hold of a member: "+storetest.Tail(s.Log, 10))
	}
	return s
}

// traced reports whether a debugger has all threads of a process.
func traced(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err == nil && bytes.Contains(status, []byte("\nTracerPid:\t0\n")) {
			return false
		}
	}
	return true
}

// held counts the syncs that were held up so far.
func (s *slowDisk) held(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(s.trace)
	require.NoError(t, err)
	return bytes.Count(data, []byte("(DELAYED)")) + bytes.Count(data, []byte("<unfinished ...>"))
}
