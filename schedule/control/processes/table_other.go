//go:build !linux

package processes

import "errors"

var errUnknown = errors.New("the process table can be read on Linux only: control members there")

// Read fails: see errUnknown.
func Read(string, string) (*Table, error) { return nil, errUnknown }

// Named fails: see errUnknown.
func Named(string) (*Table, error) { return nil, errUnknown }

// Started fails: see errUnknown.
func Started(int) (uint64, error) { return 0, errUnknown }
