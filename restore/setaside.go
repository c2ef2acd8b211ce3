package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/requorum/requorum/store/safedir"
)

// Aside says what a set-aside of a member's data moves, without a new one being built in
// the same breath, and where to: the first step of rebuilding a cluster, on each of its
// hosts. It is made before anything is moved, so that the caller can record it first;
// from the record the work can be completed, and undone, whatever ended it.
type Aside struct {
	Member  string    `json:"member"`
	Run     string    `json:"run"` // whose work it is: it stands in the files that are left
	Time    time.Time `json:"time"`
	DataDir string    `json:"data_dir"`
	WALDir  string    `json:"wal_dir,omitempty"` // empty where the log lies in the data directory
	// Folder is the path that the member folder gets, and Inode its number in the
	// file system, by which it is known again. Empty where there is no member
	// folder with anything of the user's in it.
	Folder string `json:"folder,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
	// Log is the folder in the WAL directory for LogFiles: names and inodes.
	Log      string            `json:"log,omitempty"`
	LogFiles map[string]uint64 `json:"log_files,omitempty"`
	// Blocked says that the WAL directory had been blocked before.
	Blocked bool `json:"blocked,omitempty"`
	// Empty says that the data directory does not exist: there is nothing to do.
	Empty bool `json:"empty,omitempty"`
}

// PlanAside looks what a set-aside would move, of which Member to WALDir are given, and
// changes nothing. It fails with ErrInUse while an etcd runs on the directories.
func PlanAside(of Aside) (*Aside, error) {
	a := &of
	a.Time = a.Time.UTC()
	there, err := directory(a.DataDir)
	if err != nil {
		return nil, err
	}
	a.Empty = !there
	if err := CheckMemberIdle(a.DataDir, a.WALDir); err != nil {
		return nil, err
	}
	if there {
		if err := a.planMember(); err != nil {
			return nil, err
		}
	}
	return a, a.planLog()
}

func (a *Aside) planMember() error {
	state, _, err := memberStateOf(a.live())
	if err != nil || state == stateAbsent || state == stateUnfinished {
		return err
	}
	if err := checkSwappable(a.DataDir, a.live()); err != nil {
		return err
	}
	if err := checkOwnLog(Member{WALDir: a.WALDir}, a.live()); err != nil {
		return err
	}
	if a.Folder, err = freeName(filepath.Join(a.DataDir, memberAsidePrefix+stamp(a.Time))); err != nil {
		return err
	}
	a.Inode, err = inodeOf(a.live())
	return err
}

func (a *Aside) planLog() error {
	if a.WALDir == "" {
		return nil
	}
	b, err := readBlocker(a.WALDir)
	if err != nil {
		return err
	}
	a.Blocked = b != nil
	names, err := foreign(a.WALDir)
	if err != nil || len(names) == 0 {
		return err
	}
	a.LogFiles = map[string]uint64{}
	for _, name := range names {
		if a.LogFiles[name], err = inodeOf(filepath.Join(a.WALDir, name)); err != nil {
			return err
		}
	}
	a.Log, err = freeName(filepath.Join(a.WALDir, setAsidePrefix+stamp(a.Time)))
	return err
}

// Paths are where the data is once it was set aside: the member folder's and, with a
// WAL directory of its own, the log's. Empty where there was nothing.
func (a *Aside) Paths() (all []string) {
	for _, path := range []string{a.Folder, a.Log} {
		if path != "" {
			all = append(all, path)
		}
	}
	return all
}

func (a *Aside) live() string { return filepath.Join(a.DataDir, "member") }

// planID is what a blocker and a record of a set-aside name instead of a plan.
func (a *Aside) planID() string { return placedPrefix + a.Run }

const placedPrefix = "set-aside-"

// Do moves what the plan says, by renaming inside the mount: owners, modes and
// labels stay. In its place it leaves a member folder that no etcd can start
// from, and that a restore may replace: at no moment does the data directory lie
// there without a log. Done again, it completes what was begun. It fails with
// ErrInUse while an etcd or a restore has the directories.
func (a *Aside) Do(ctx context.Context) error {
	return a.locked(ctx, func() error {
		if err := a.doLog(); err != nil {
			return fmt.Errorf("set aside the log of member %s: %w", a.Member, err)
		}
		if a.Empty {
			return nil
		}
		if err := a.doMember(); err != nil {
			return fmt.Errorf("set aside member %s: %w", a.Member, err)
		}
		return nil
	})
}

// locked works while no restore has the directories, and no etcd.
func (a *Aside) locked(ctx context.Context, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dirs := []string{a.WALDir, a.DataDir}
	var open []*site
	var err error
	for _, dir := range dirs {
		if there, missing := exists(dir); dir == "" || missing == nil && !there {
			continue
		}
		var s *site
		s, err = openSite(dir)
		open = append(open, s)
		if err != nil {
			break
		}
	}
	if err == nil {
		err = CheckMemberIdle(a.DataDir, a.WALDir)
	}
	if err == nil {
		err = work()
	}
	for _, s := range open {
		err = errors.Join(err, s.close(false))
	}
	return err
}

func (a *Aside) doLog() error {
	if a.WALDir == "" {
		return nil
	}
	if there, err := exists(a.WALDir); err != nil || !there {
		return err
	}
	if b, err := readBlocker(a.WALDir); err != nil {
		return err
	} else if b == nil {
		if err := writeBlocker(a.WALDir, a.blocker()); err != nil {
			return err
		}
	}
	if a.Log == "" {
		return nil
	}
	if err := safedir.Mkdir(a.Log); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return moveKnown(a.WALDir, a.Log, a.LogFiles)
}

// moveKnown moves the files that are still the ones that were looked at.
func moveKnown(from, to string, files map[string]uint64) error {
	for name, inode := range files {
		at, err := inodeOf(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && at != inode {
			if there, err2 := inodeOf(filepath.Join(to, name)); err2 == nil && there == inode {
				continue // by an earlier run
			}
			err = fmt.Errorf("%s is not the file that was looked at: something else works in %s: stop it, then run again", filepath.Join(from, name), from)
		}
		if err != nil {
			return err
		}
		if err := move(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *Aside) doMember() error {
	if a.Folder == "" {
		there, err := exists(a.live())
		if err != nil || there {
			return err
		}
		return a.placeBlocked(a.live())
	}
	if at, err := inodeOf(a.Folder); err == nil && at == a.Inode {
		return nil // by an earlier run
	}
	if at, err := inodeOf(a.live()); err != nil || at != a.Inode {
		return errors.Join(err, fmt.Errorf("%s is not the folder that was looked at: something else works there: stop it, then run again", a.live()))
	}
	if ours, err := a.placed(a.Folder); err != nil {
		return err
	} else if !ours {
		if err := a.placeBlocked(a.Folder); err != nil {
			return err
		}
	}
	return swapDirs(a.Folder, a.live())
}

// placeBlocked makes a member folder that nothing can start from.
func (a *Aside) placeBlocked(path string) error {
	stage, err := safedir.Private(filepath.Join(a.DataDir, stagingName))
	if err != nil {
		return err
	}
	defer stage.Close() //nolint:errcheck // a descriptor of a folder
	built := filepath.Join(stage.Pinned(), "blocked")
	if err := safedir.RemoveAll(built); err != nil { // of a run that was killed: ours alone
		return err
	}
	if err := safedir.MkdirAll(filepath.Join(built, "wal")); err != nil {
		return err
	}
	if err := writeBlocker(filepath.Join(built, "wal"), a.blocker()); err != nil {
		return err
	}
	r := record{Member: a.Member, Plan: &Plan{ID: a.planID(), CreatedAt: a.Time}}
	if err := writeRecord(filepath.Join(built, unfinishedName), r); err != nil {
		return err
	}
	t, err := traitsFrom(nil, a.live(), a.DataDir)
	if err != nil {
		return err
	}
	if err := errors.Join(t.apply(built), syncTree(built)); err != nil {
		return err
	}
	return move(built, path)
}

// placed reports whether a folder is what this set-aside left in a member's place.
func (a *Aside) placed(path string) (bool, error) {
	state, r, err := memberStateOf(path)
	return err == nil && state == stateUnfinished && r.Plan.ID == a.planID(), err
}

func (a *Aside) blocker() blocker {
	return blocker{
		What:     "the data of this member was set aside for the recovery of its cluster: etcd refuses to start from this folder, so that it cannot begin an empty cluster",
		Plan:     a.planID(),
		Member:   a.Member,
		DataDir:  a.DataDir,
		WhatToDo: "run `requorum recover` again with the same configuration: it goes on; with --undo it puts the data back",
		WhatNot:  "don't delete this file to get etcd started: the data lies under a set-aside name beside it",
	}
}

func swapDirs(x, y string) error {
	err := safedir.Exchange(x, y)
	if errors.Is(err, safedir.ErrNoExchange) {
		return fmt.Errorf("%s: %w: with etcd stopped, move %s to a name of your choice, and run again", filepath.Dir(y), err, y)
	}
	return errors.Join(err, safedir.Sync(filepath.Dir(y)))
}

func inodeOf(path string) (uint64, error) {
	info, err := safedir.Lstat(path)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: this system reports no inodes", path)
	}
	return st.Ino, nil
}

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
			safedir.Remove(filepath.Join(path, "wal", blockerName)), safedir.Remove(filepath.Join(path, "wal")),
			safedir.Remove(filepath.Join(path, unfinishedName)), safedir.Remove(path), safedir.Sync(a.DataDir))
	}
	to, err := freeName(filepath.Join(a.DataDir, memberAsidePrefix+stamp(now)))
	if err != nil {
		return err
	}
	*aside = append(*aside, to)
	return move(path, to)
}

// bare reports whether a folder is our placeholder with nothing else in it. An etcd
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

// Placeholder reports whether a member's directories hold nothing but what a set-aside
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
			if err := errors.Join(moveKnown(a.Log, a.WALDir, a.LogFiles), safedir.Remove(a.Log)); err != nil {
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
	if err := safedir.Mkdir(to); err != nil {
		return err
	}
	*aside = append(*aside, to)
	return moveKnown(a.WALDir, to, files)
}

// View makes folder, which it makes as well, look like the data directory before
// the set-aside, by a link: for those who read a data directory. walDir is empty
// where the log is in it. What is removed with folder is the link alone. Where
// nothing was set aside, the data directory is one without a member.
func (a *Aside) View(folder string) (dataDir, walDir string, err error) {
	if err := safedir.MkdirAll(folder); err != nil {
		return "", "", fmt.Errorf("a view of what was set aside: %w", err)
	}
	link := filepath.Join(folder, "member")
	if target, err := safedir.Readlink(link); a.Folder != "" && (err != nil || target != a.Folder) {
		if err := safedir.Symlink(a.Folder, link); err != nil {
			return "", "", fmt.Errorf("a view of what was set aside: %w", err)
		}
	}
	return folder, a.Log, nil
}
