//go:build !linux

package storetest

import "syscall"

// WithParent has nothing to add here: elsewhere than on Linux, a test process that
// is killed leaves its children behind.
func WithParent(syscall.Signal) *syscall.SysProcAttr { return nil }
