//go:build !linux

package job

import "syscall"

// limitMemory does nothing here: elsewhere than on Linux only Go's own collector
// keeps to the limit.
func limitMemory(int, int64) error { return nil }

// withParent has nothing to add here.
func withParent() *syscall.SysProcAttr { return nil }
