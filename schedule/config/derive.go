package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/walreplay/archive"
)

// derive fills in the defaults that follow from other keys or from the host. What
// cannot be found is left empty, and found missing later.
func (c *Config) derive() {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	if c.Archive.Interval == 0 {
		c.Archive.Interval = Duration(DiskInterval)
		if strings.HasPrefix(c.Repository.URL, "s3:") {
			c.Archive.Interval = Duration(archive.DefaultInterval)
		}
	}
	if c.Archive.SpoolDir == "" && c.Archiving() {
		c.Archive.SpoolDir, _ = DefaultSpoolDir(c.getenv, c.Member.DataDir+"\n"+c.Member.WALDir+"\n"+c.Repository.URL)
	}
	if c.Resources.ScratchDir == "" {
		c.Resources.ScratchDir = os.TempDir()
	}
	if c.Objectives.RecoveryPoint == 0 {
		c.Objectives.RecoveryPoint = max(Duration(time.Minute), 6*c.Archive.Interval)
		if !c.Archiving() {
			c.Objectives.RecoveryPoint = Duration(2 * day)
		}
	}
	if zone, err := time.LoadLocation(c.TimeZone); err == nil {
		c.zone = zone
	}
}

// DefaultSpoolDir is a folder below the user's state folder, one for each member
// and repository: archivers do not share a spool. A service's own state folder
// comes first, as systemd gives it.
func DefaultSpoolDir(getenv func(string) string, of string) (string, error) {
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
	return "", errors.New("no folder for the spool is known")
}
