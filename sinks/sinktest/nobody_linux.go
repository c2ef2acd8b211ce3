package sinktest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is the user who owns no file.
const nobody = 65534

// AsNobody runs do with the file rights of a user who has none. It needs root to
// change; others are refused by the modes alone.
func AsNobody(t testing.TB, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked: it ends with the goroutine, and its
		// changed identity with it.
		runtime.LockOSThread()
		if err := unix.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}
