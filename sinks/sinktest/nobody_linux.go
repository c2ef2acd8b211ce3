package sinktest

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
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
	// The thread is given back: were it to end, so would all servers that tests have
	// started from it (PR_SET_PDEATHSIG counts a thread as the parent).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(nobody))
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
	}()
	do()
}
