//go:build !linux

package supervisor

import "errors"

var errUnknown = errors.New("the process table can be read on Linux only: control members there")

// ProcessesUsing fails: see errUnknown.
func ProcessesUsing(string, string) (*ProcessTable, error) { return nil, errUnknown }

func startsNew(int) bool { return false }

// ProcessesNamed fails: see errUnknown.
func ProcessesNamed(string) (*ProcessTable, error) { return nil, errUnknown }
