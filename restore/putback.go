package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Undo puts back what Do moved. What was built in its place meanwhile is the
// user's as well: it is set aside in turn, and the paths that it got are
// returned. Done again, it completes what was begun; undone before it was done,
// it changes nothing. It fails with ErrInUse while an etcd or a restore has the
// directories.
func (a *Aside) Undo(ctx context.Context, now time.Time) (aside []string, err error) {
	err = a.locked(ctx, func() error {
		// The member first: while a WAL directory of its own is blocked, nothing
		// starts from either.
		// Where there was no data directory, a member may have been built since.
		if err := a.undoMember(now, &aside); err != nil {
			return fmt.Errorf("put back member %s: %w", a.Member, err)
		}
		if err := a.undoLog(now, &aside); err != nil {
			return fmt.Errorf("put back the log of member %s: %w", a.Member, err)
		}
		return nil
	})
	return aside, err
}

func (a *Aside) undoMember(now time.Time, aside *[]string) error {
	if a.Folder == "" {
		state, r, err := memberStateOf(a.live())
		if err != nil || state == stateUnfinished && r.Plan.ID != a.planID() {
			return err // an unfinished restore: nothing starts from it
		}
		// There was nothing: what lies there now goes out of the way.
		return a.clear(a.live(), now, aside)
	}
	back, err := inodeOf(a.live())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || back != a.Inode {
		at, err := inodeOf(a.Folder)
		if err != nil || at != a.Inode {
			return errors.Join(err, fmt.Errorf("neither %s nor %s is the folder that was set aside: look for it, and move it to %s with etcd stopped", a.live(), a.Folder, a.live()))
		}
		there, err := exists(a.live())
		if err != nil {
			return err
		}
		if !there {
			return move(a.Folder, a.live())
		}
		if err := swapDirs(a.Folder, a.live()); err != nil {
			return err
		}
	}
	return a.clear(a.Folder, now, aside)
}

// clear takes away what stands at a path: our own placeholder for good, anything
// else under a set-aside name of its own.
func (a *Aside) clear(path string, now time.Time, aside *[]string) error {
	there, err := exists(path)
	if err != nil || !there {
		return err
	}
	ours, err := a.bare(path)
	if err != nil {
		return err
	}
	if ours {
		return errors.Join(
			os.Remove(filepath.Join(path, "wal", blockerName)), os.Remove(filepath.Join(path, "wal")),
			os.Remove(filepath.Join(path, unfinishedName)), os.Remove(path), syncDir(a.DataDir))
	}
	to, err := freeName(filepath.Join(a.DataDir, memberAsidePrefix+stamp(now)))
	if err != nil {
		return err
	}
	*aside = append(*aside, to)
	return move(path, to)
}

// bare tells whether a folder is our placeholder with nothing else in it. An etcd
// that was refused leaves files of its own there: then it is kept whole.
func (a *Aside) bare(path string) (bool, error) {
	ours, err := a.placed(path)
	if err != nil || !ours {
		return false, err
	}
	inside, err := entries(path)
	if err != nil {
		return false, err
	}
	log, err := entries(filepath.Join(path, "wal"))
	return len(inside) == 2 && len(log) == 1, err
}

// Placeholder tells whether a member's directories hold nothing but what a set-aside
// left in their place: whose it was, its data is gone from there.
func Placeholder(dataDir, walDir string) (bool, error) {
	a := Aside{DataDir: dataDir}
	state, r, err := memberStateOf(a.live())
	if err != nil || state != stateUnfinished {
		return false, err
	}
	a.Run, _ = strings.CutPrefix(r.Plan.ID, placedPrefix)
	if bare, err := a.bare(a.live()); !bare || err != nil || walDir == "" {
		return bare, err
	}
	names, err := foreign(walDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(names) == 0 && err == nil, err
}

func (a *Aside) undoLog(now time.Time, aside *[]string) error {
	if a.WALDir == "" {
		return nil
	}
	if there, err := exists(a.WALDir); err != nil || !there {
		return err
	}
	names, err := foreign(a.WALDir)
	if err != nil {
		return err
	}
	newer := map[string]uint64{}
	for _, name := range names {
		at, err := inodeOf(filepath.Join(a.WALDir, name))
		if err != nil {
			return err
		}
		if at != a.LogFiles[name] {
			newer[name] = at
		}
	}
	if len(newer) > 0 {
		if err := a.clearLog(newer, now, aside); err != nil {
			return err
		}
	}
	if a.Log != "" {
		if there, err := exists(a.Log); err != nil {
			return err
		} else if there {
			if err := errors.Join(moveKnown(a.Log, a.WALDir, a.LogFiles), os.Remove(a.Log)); err != nil {
				return err
			}
		}
	}
	if a.Blocked {
		return nil
	}
	return removeBlocker(a.WALDir)
}

// clearLog sets aside a log that was made after ours had gone.
func (a *Aside) clearLog(files map[string]uint64, now time.Time, aside *[]string) error {
	if err := writeBlocker(a.WALDir, a.blocker()); err != nil {
		return err
	}
	to, err := freeName(filepath.Join(a.WALDir, setAsidePrefix+stamp(now)))
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	*aside = append(*aside, to)
	return moveKnown(a.WALDir, to, files)
}
