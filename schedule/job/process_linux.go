package job

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitMemory bounds the private memory that a process can write to. Files that it maps
// to read, as bbolt does, do not count.
func limitMemory(pid int, bytes int64) error {
	return unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}, nil)
}

// withParent lets a child get a signal when its parent has ended.
func withParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
