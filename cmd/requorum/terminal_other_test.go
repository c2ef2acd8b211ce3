//go:build !linux

package main

import (
	"os"
	"testing"
)

// terminal is for Linux.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	t.Skip("SKIPPED: a pseudo-terminal is made on Linux only")
	return nil, nil
}
