//go:build !linux

package sinktest

import (
	"os"
	"testing"
)

// AsNobody is for Linux, where a thread can have file rights of its own: elsewhere
// root skips the test, and all others are refused by the modes alone.
func AsNobody(t testing.TB, do func()) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("SKIPPED: run as another user than root, whom file modes do not hold")
	}
	do()
}
