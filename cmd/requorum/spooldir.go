package main

import (
	"fmt"

	"github.com/requorum/requorum/schedule/config"
)

// defaultSpoolDir is where an archiver of that member and repository keeps its
// spool when it is not told.
func defaultSpoolDir(getenv func(string) string, of string) (string, error) {
	dir, err := config.DefaultSpoolDir(getenv, of)
	if err != nil {
		return "", usageError{fmt.Errorf("%w: give --spool-dir, or set HOME or STATE_DIRECTORY", err)}
	}
	return dir, nil
}
