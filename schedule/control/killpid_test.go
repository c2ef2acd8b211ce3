package control_test

import (
	"os"
	"strconv"
)

// killPID ends a process that a script of the test's own started.
func killPID(text string) {
	if pid, err := strconv.Atoi(text); err == nil {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
