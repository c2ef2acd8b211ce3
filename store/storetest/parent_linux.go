package storetest

import "syscall"

// WithParent sends a process that a test starts a signal when the test's own
// process ends, however that ends: one that is killed must leave nothing behind.
func WithParent(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: signal}
}
