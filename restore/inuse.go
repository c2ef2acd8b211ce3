package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/store/safedir"
)

// CheckFileIdle fails with ErrInUse while an etcd runs on the database file at
// path, such as DIR/member/snap/db: a copy of it would mix two moments. It opens
// files read-only and changes nothing. Any other file, such as one of
// `etcdctl snapshot save`, is idle.
func CheckFileIdle(path string) error {
	if info, err := safedir.Stat(path); err != nil || !info.Mode().IsRegular() {
		return err // a reader says what is wrong with what is no file
	}
	f, err := safedir.Open(path)
	if err != nil {
		return err
	}
	real := f.Name() // without links
	busy, err := databaseInUse(f)
	if err != nil {
		return err
	}
	if folder := filepath.Dir(real); !busy && filepath.Base(folder) == "snap" {
		log, err := segmentInUse(filepath.Join(filepath.Dir(folder), "wal"))
		if err != nil {
			return err
		}
		busy = log != ""
	}
	if busy {
		return fmt.Errorf("%s %w by a running etcd: stop that member, or take a backup through its endpoint instead", path, ErrInUse)
	}
	return nil
}

// CheckMemberIdle fails with ErrInUse while an etcd runs on a data directory or
// on its separate WAL directory, empty where it has none: a copy would mix two
// moments. It opens files read-only and changes nothing.
func CheckMemberIdle(dataDir, walDir string) error {
	member := filepath.Join(dataDir, "member")
	if walDir == "" {
		walDir = filepath.Join(member, "wal")
	}
	return checkStopped(member, walDir)
}

// checkStopped fails with ErrInUse while an etcd has a member's database or
// log open. It opens them read-only and changes nothing.
func checkStopped(member, walDir string) error {
	db := filepath.Join(member, "snap", "db")
	busy := false
	f, err := safedir.Open(db)
	if err == nil {
		busy, err = databaseInUse(f)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if busy {
		return fmt.Errorf("%s %w: stop the etcd that runs on it", db, ErrInUse)
	}
	segment, err := segmentInUse(walDir)
	if err != nil {
		return err
	}
	if segment != "" {
		return fmt.Errorf("%s %w: stop the etcd that writes to it", segment, ErrInUse)
	}
	return nil
}

// databaseInUse asks for the lock that bbolt keeps on an open database, and closes
// the file.
func databaseInUse(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	busy := errors.Is(err, unix.EWOULDBLOCK)
	if busy {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("ask for the lock of %s: %w", f.Name(), err)
	}
	return busy, nil
}

// segmentInUse is the log segment in a folder that an etcd has locked; empty
// when there is none.
func segmentInUse(walDir string) (string, error) {
	names, err := entries(walDir)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wal") || name == blockerName {
			continue
		}
		path := filepath.Join(walDir, name)
		f, err := safedir.Open(path)
		if err != nil {
			return "", err
		}
		busy, err := logInUse(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("ask for the lock of %s: %w", path, err)
		}
		if busy {
			return path, nil
		}
	}
	return "", nil
}
