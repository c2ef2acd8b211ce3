//go:build !linux

package supervisor

import "errors"

var errUnknown = errors.New("the process table can be read on Linux only: control members there")

// ProcessesUsing fails: see errUnknown.
func ProcessesUsing(string, string) (*ProcessTable, error) { return nil, errUnknown }

// ProcessesNamed fails: see errUnknown.
func ProcessesNamed(string) (*ProcessTable, error) { return nil, errUnknown }

// processStarted fails: see errUnknown.
func processStarted(int) (uint64, error) { return 0, errUnknown }
