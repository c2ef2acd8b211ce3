package storetest

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts a file system of a size as mount takes it ("64m"), for the time
// of the test. It takes root.
func SmallDisk(t testing.TB, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		Unavailable(t, "mounting a small file system takes root: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// GrowDisk gives a SmallDisk another size.
func GrowDisk(t testing.TB, dir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
		t.Fatal(err)
	}
}

// WithParent sends a process that a test starts a signal when the test's own
// process ends, however that ends: one that is killed must leave nothing behind.
func WithParent(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: signal}
}
