//go:build !linux

package storetest

import (
	"net"
	"syscall"
	"testing"
)

// SmallDisk is for Linux.
func SmallDisk(t testing.TB, _ string) (dir string) {
	t.Helper()
	Unavailable(t, "a small file system is mounted on Linux only")
	return ""
}

// GrowDisk is for Linux.
func GrowDisk(testing.TB, string, string) {}

// WithParent has nothing to add here: elsewhere than on Linux, a test process that
// is killed leaves its children behind.
func WithParent(syscall.Signal) *syscall.SysProcAttr { return nil }

// owners is for Linux: nobody is known here.
func owners([]net.Conn, []int) map[net.Conn]int { return nil }
