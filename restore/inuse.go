package restore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
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
	walDir := ""
	if folder := filepath.Dir(f.Name()); filepath.Base(folder) == "snap" { // its name is without links
		walDir = filepath.Join(filepath.Dir(folder), "wal")
	}
	if err := f.Close(); err != nil {
		return err
	}
	used, err := fileInUse(path, walDir)
	if err == nil && used != "" {
		err = fmt.Errorf("%s %w by a running etcd: stop that member, or take a backup through its endpoint instead", path, ErrInUse)
	}
	return err
}

// LogDir is where a member's log lies: in its separate WAL directory or, where that is
// empty, in its data directory.
func LogDir(dataDir, walDir string) string {
	return cmp.Or(walDir, filepath.Join(dataDir, "member", "wal"))
}

// CheckMemberIdle fails with ErrInUse while an etcd runs on a data directory or
// on its separate WAL directory, empty where it has none: a copy would mix two
// moments. It opens files read-only and changes nothing.
func CheckMemberIdle(dataDir, walDir string) error {
	if err := walreplay.CheckDataDir(dataDir); err != nil {
		return err
	}
	return checkStopped(filepath.Join(dataDir, "member"), LogDir(dataDir, walDir))
}

// checkStopped fails with ErrInUse while an etcd has a member's database or
// log open. It opens them read-only and changes nothing.
func checkStopped(member, walDir string) error {
	db := filepath.Join(member, "snap", "db")
	switch used, err := fileInUse(db, walDir); {
	case err != nil:
		return err
	case used == db:
		return fmt.Errorf("%s %w: stop the etcd that runs on it", used, ErrInUse)
	case used != "":
		return fmt.Errorf("%s %w: stop the etcd that writes to it", used, ErrInUse)
	}
	return nil
}

// lingers is how long the lock of a process that has ended may still be seen: Linux
// keeps a mapped file, and its lock, while anybody reads the process's entry in /proc,
// as ps does. A log is never mapped, so its lock ends with its process.
const lingers = time.Second

// fileInUse is the file that a running etcd has locked: the database, or a segment of
// the log in walDir, where there is one; empty when there is none.
func fileInUse(db, walDir string) (string, error) {
	for deadline := time.Now().Add(lingers); ; time.Sleep(lingers / 100) {
		busy, err := databaseInUse(db)
		if err != nil {
			return "", err
		}
		segment := ""
		if walDir != "" {
			if segment, err = segmentInUse(walDir); err != nil {
				return "", err
			}
		}
		switch {
		case !busy:
			return segment, nil
		case segment != "" || time.Now().After(deadline):
			return db, nil
		}
	}
}

// databaseInUse asks for the lock that bbolt keeps on an open database. A file that
// is not there is not in use.
func databaseInUse(path string) (bool, error) {
	f, err := safedir.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	busy := errors.Is(err, unix.EWOULDBLOCK)
	if busy {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("ask for the lock of %s: %w", path, err)
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
