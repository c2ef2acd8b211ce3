package schedule

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Priorities of an accepted configuration are the process's. The test lets it stand
// back by one, which no one takes back.
func TestReloadPriority(t *testing.T) {
	nice := func() int {
		raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, os.Getpid())
		must(t, err)
		return 20 - raw
	}
	if nice() > 0 {
		t.Skip("this process stands back already")
	}
	dir, address := t.TempDir(), freeAddress(t)
	a, stop := start(t, onDisk(dir, address, ""), &lines{})
	a.Reload(t.Context(), parse(t, strings.Replace(onDisk(dir, address, ""), "nice: 0", "nice: 1", 1)))
	eventually(t, "it stands back", func() bool { return nice() == 1 })
	must(t, stop())
}
