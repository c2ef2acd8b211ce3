//go:build !linux

package job

import "syscall"

// limitMemory does nothing here: elsewhere than on Linux only Go's own collector
// keeps to the limit.
func limitMemory(int64) error { return nil }

// withParent has nothing to add here: the end of standard input tells the child.
func withParent() *syscall.SysProcAttr { return nil }
