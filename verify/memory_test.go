package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// memoryArgument makes the test binary verify a repository and report the most
// memory that it had.
const memoryArgument = "verify-of-a-test"

func verifyAndMeasure(dir, scratch string) error {
	sink, err := disk.New(dir)
	if err != nil {
		return err
	}
	repo, err := repository.Open(context.Background(), sink)
	if err != nil {
		return err
	}
	r, err := verify.Repository(context.Background(), repo, verify.Request{Backup: verify.All, Level: report.Structure, ScratchDir: scratch})
	if err != nil {
		return err
	}
	if r.Status() != report.Passed {
		return fmt.Errorf("%+v", r.Checks)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, after, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		return errors.New("the kernel does not report VmHWM")
	}
	_, err = fmt.Fprintln(os.Stdout, strings.Fields(after)[0])
	return err
}

// Promise 4: up to the level structure a database and a log of four times the size
// take no more memory. The values cannot be compressed.
func TestPromise4FlatMemory(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("only Linux reports how much memory a process had")
	}
	small := storetest.Amount(12, 32, 32) << 20
	large := 4 * small
	if storetest.Soak() {
		large = 20 * small
	}
	measure := func(size int) (stored, most int64) {
		dir := filepath.Join(t.TempDir(), "repo")
		sink, err := disk.New(dir)
		require.NoError(t, err)
		defer sink.Close()
		l := newLoggedOn(t, sink)
		random := rand.NewChaCha8([32]byte{})
		const value = 32 << 10
		for i := range size / value {
			v := make([]byte, value)
			random.Read(v)
			l.put(strconv.Itoa(i%100), string(v))
		}
		id := l.backup()
		l.archive()
		info, err := sink.Stat(t.Context(), repository.SnapshotName(l.id, id, 1, false))
		l.must(err)
		self, err := os.Executable()
		l.must(err)
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), self, memoryArgument, dir, t.TempDir())
		cmd.Stdout, cmd.Stderr = &out, &stderr
		// What is in use is to be measured, not how far the collector is behind on a
		// busy machine, nor how many processors it has: each reads pages of its own.
		cmd.Env = append(os.Environ(), "GOGC=20", "GOMAXPROCS=2")
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
		l.must(err)
		return info.Size, kib << 10
	}
	storedSmall, mostSmall := measure(small)
	storedLarge, mostLarge := measure(large)
	t.Logf("a snapshot of %d MiB: %d MiB of memory; of %d MiB: %d MiB", storedSmall>>20, mostSmall>>20, storedLarge>>20, mostLarge>>20)
	if storedLarge < 3*storedSmall {
		t.Errorf("snapshots of %d and %d bytes", storedSmall, storedLarge)
	}
	if grown := mostLarge - mostSmall; grown > (storedLarge-storedSmall)/3 {
		t.Errorf("%d bytes of memory for %d, %d for %d", mostSmall, storedSmall, mostLarge, storedLarge)
	}
}
