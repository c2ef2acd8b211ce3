package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// checkStopped fails with ErrInUse while an etcd has a member's database or
// log open. It opens them read-only and changes nothing.
func checkStopped(member, walDir string) error {
	db := filepath.Join(member, "snap", "db")
	f, err := os.Open(db)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s %w (%w): stop the etcd that runs on it", db, ErrInUse, err)
		}
	}
	names, err := entries(walDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wal") || name == blockerName {
			continue
		}
		path := filepath.Join(walDir, name)
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		busy, err := logInUse(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("ask for the lock of %s: %w", path, err)
		}
		if busy {
			return fmt.Errorf("%s %w: stop the etcd that writes to it", path, ErrInUse)
		}
	}
	return nil
}
