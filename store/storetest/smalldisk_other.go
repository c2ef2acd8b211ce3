//go:build !linux

package storetest

import "testing"

// SmallDisk is for Linux.
func SmallDisk(t testing.TB, _ string) (dir string) {
	t.Helper()
	Unavailable(t, "a small file system is mounted on Linux only")
	return ""
}

// GrowDisk is for Linux.
func GrowDisk(testing.TB, string, string) {}
