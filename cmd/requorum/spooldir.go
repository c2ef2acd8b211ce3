package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// defaultSpoolDir is a folder below the user's state folder, one for each
// member and repository: archivers do not share a spool. A service's own state
// folder comes first, as systemd gives it.
func defaultSpoolDir(getenv func(string) string, of string) (string, error) {
	sum := sha256.Sum256([]byte(of))
	base := fmt.Sprintf("spool-%x", sum[:6])
	state, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":") // it may be several
	switch {
	case filepath.IsAbs(state):
		return filepath.Join(state, base), nil
	case filepath.IsAbs(getenv("XDG_STATE_HOME")):
		return filepath.Join(getenv("XDG_STATE_HOME"), "requorum", base), nil
	case os.Getuid() == 0:
		return filepath.Join("/var/lib/requorum", base), nil
	case filepath.IsAbs(getenv("HOME")):
		return filepath.Join(getenv("HOME"), ".local", "state", "requorum", base), nil
	}
	return "", usageError{errors.New("no spool folder: give --spool-dir, or set HOME or STATE_DIRECTORY")}
}
