package recovertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// front is the name of the program, of no other host, that stands for a client of the cluster:
// it only runs.
func (h *Host) front() string { return fmt.Sprintf("front%dm%d", h.site.number, h.number) }

// writeFront writes what starts and stops it.
func (h *Host) writeFront(t testing.TB) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	program, pid := filepath.Join(h.dir, h.front()), filepath.Join(h.dir, "front.pid")
	require.NoError(t, os.Symlink(sleep, program))
	h.writeMode(t, "start-front", fmt.Sprintf("#!/bin/sh\nsetsid %s 86400 </dev/null >/dev/null 2>&1 &\necho $! >%s\n", program, pid), 0o700)
	h.writeMode(t, "stop-front", fmt.Sprintf("#!/bin/sh\nkill $(cat %s)\n", pid), 0o700)
}

// StartFront starts the host's client.
func (h *Host) StartFront(t testing.TB) {
	t.Helper()
	out, err := h.space.command(filepath.Join(h.dir, "start-front")).CombinedOutput()
	require.NoError(t, err, string(out))
}

// FrontRuns reports whether it runs.
func (h *Host) FrontRuns(t testing.TB) bool {
	t.Helper()
	for _, pid := range h.space.processes(t) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.TrimSpace(string(name)) == h.front() {
			return true
		}
	}
	return false
}
