//go:build !linux

package main

// freeSpace is not known on this platform.
func freeSpace(string) (free int64, known bool, err error) { return 0, false, nil }
