package sinktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// AsNobody takes rights and gives them back, and a process that the same thread has
// started lives on.
func TestAsNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	child := exec.Command("sleep", "100")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil { // from the thread that AsNobody most likely gets
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	AsNobody(t, func() {
		if _, err := os.ReadDir(dir); err == nil {
			t.Error("nobody reads a folder of root's")
		}
	})
	_, err := os.ReadDir(dir)
	require.NoError(t, err)
	select {
	case err := <-ended:
		t.Fatalf("the child has ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, child.Process.Kill())
	<-ended
}
