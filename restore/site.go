package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

const (
	// stagingName is the folder, inside a data or WAL directory, in which it is
	// built: within the directory, so that a mount point works too.
	stagingName = ".requorum"
	// besidePattern names the stand-in, beside a directory that does not exist
	// yet, which is renamed to it. %s is the directory's name.
	besidePattern = ".%s.requorum"
	// setAsidePrefix names, within a WAL directory, what was found there;
	// memberAsidePrefix an old member folder within a data directory.
	setAsidePrefix    = "set-aside-"
	memberAsidePrefix = "member.set-aside-"
)

// BringPrefix begins the name of a folder, within a data directory, in which a
// recovery gathers what it rebuilds a member from.
const BringPrefix = ".requorum-bring-"

// site is a directory that a restore fills: a data directory, or a separate
// WAL directory. Its lock keeps other restores away.
type site struct {
	final string // where the member will look for it
	root  string // final, or its stand-in while final does not exist
	dir   *safedir.Dir
	stage *safedir.Dir // the folder that it is built in: nobody else gets into it
	lock  *os.File
	made  []*safedir.Dir // parent folders that had to be made, outermost first
}

// lockTries is how often the staging folder may be replaced while it is locked.
const lockTries = 100

// openSite locks a directory for this run, making the stand-in where there is
// no directory yet. With an error, too, the site it returns is to be closed.
func openSite(final string) (*site, error) {
	s := &site{final: final, root: final}
	there, err := exists(final)
	if err != nil {
		return s, err
	}
	if !there {
		s.root = besideOf(final)
		if err := s.makeParents(); err != nil {
			return s, err
		}
	}
	for try := 1; s.lock == nil; try++ {
		if try > lockTries {
			return s, fmt.Errorf("%s is replaced again and again: stop what works in %s, then run again", filepath.Join(s.root, stagingName), s.root)
		}
		if err := errors.Join(s.forget(), s.openRoot(!there)); err != nil {
			return s, fmt.Errorf("build in %s: %w", s.root, err)
		}
		if s.lock, _, err = s.stage.Lock(); err != nil {
			if errors.Is(err, safedir.ErrLocked) {
				err = fmt.Errorf("%s %w by another restore (%w)", s.root, ErrInUse, err)
			}
			return s, err
		}
	}
	if s.root == final {
		// A run that was killed before final existed may have left its stand-in.
		return s, removeBeside(final)
	}
	if there, err = exists(final); err == nil && there {
		err = fmt.Errorf("%s appeared just now: %w by something else: stop it, then run again", final, ErrInUse)
	}
	return s, err
}

// openRoot opens the directory and its staging folder, and makes the stand-in
// where it is one.
func (s *site) openRoot(beside bool) (err error) {
	if beside {
		err := safedir.Mkdir(s.root)
		if errors.Is(err, fs.ErrExist) {
			_, err = isBeside(s.root)
		}
		if err != nil {
			return err
		}
	}
	if s.dir, err = safedir.OpenDir(s.root); err != nil {
		return err
	}
	s.stage, err = safedir.Private(filepath.Join(s.root, stagingName))
	return err
}

// isBeside fails where a folder of a stand-in's name has something in it, and not
// a restore's staging folder. Without an error it reports whether that is there.
func isBeside(path string) (staging bool, err error) {
	stage, err := safedir.OpenPrivate(filepath.Join(path, stagingName))
	if err == nil {
		return true, stage.Close()
	}
	names, listErr := safedir.Names(path)
	if listErr != nil {
		return false, listErr
	}
	if len(names) > 0 {
		return false, fmt.Errorf("%s is in the way, and no restore of this user left it: look at it, and move it away: %w", path, err)
	}
	return false, nil
}

// forget closes what is open.
func (s *site) forget() error {
	var errs []error
	for _, d := range []*safedir.Dir{s.stage, s.dir} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	s.stage, s.dir = nil, nil
	return errors.Join(errs...)
}

// makeParents makes the folders above a directory that does not exist yet.
func (s *site) makeParents() error {
	var missing []string
	for dir := filepath.Dir(s.root); ; dir = filepath.Dir(dir) {
		there, err := exists(dir)
		if err != nil {
			return err
		}
		if there {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		switch err := safedir.Mkdir(dir); {
		case errors.Is(err, fs.ErrExist): // by somebody else, just now
		case err != nil:
			return err
		default:
			// Empty and ours: it is the one that was made, whatever happened to its name.
			made, err := safedir.OpenPrivate(dir)
			if err != nil {
				return err
			}
			s.made = append(s.made, made)
		}
		if err := safedir.Sync(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

func besideOf(final string) string {
	return filepath.Join(filepath.Dir(final), fmt.Sprintf(besidePattern, filepath.Base(final)))
}

// removeBeside removes the stand-in of a dead run.
func removeBeside(final string) error {
	s := &site{final: final, root: besideOf(final)}
	there, err := exists(s.root)
	if err != nil || !there {
		return err
	}
	if staging, err := isBeside(s.root); err != nil {
		return err
	} else if !staging { // killed before it had a lock
		return safedir.Remove(s.root)
	}
	if err := s.openRoot(false); err != nil {
		return errors.Join(err, s.forget())
	}
	var gone bool
	if s.lock, gone, err = s.stage.Lock(); err != nil || gone {
		if errors.Is(err, safedir.ErrLocked) {
			err = fmt.Errorf("%s %w by another restore (%w)", s.root, ErrInUse, err)
		}
		return errors.Join(err, s.forget())
	}
	return s.close(true)
}

// staging is the folder that it is built in, as this process gets there even where
// that was given another name.
func (s *site) staging() string {
	if s.stage != nil && s.stage.Pinned() != s.stage.Name() {
		return s.stage.Pinned()
	}
	return filepath.Join(s.root, stagingName)
}

// fresh reports whether the directory does not exist yet under its own name.
func (s *site) fresh() bool { return s.root != s.final }

// sweep removes what a dead run left in staging: it was never in use.
func (s *site) sweep() error {
	err := s.stage.Empty(safedir.LockName)
	if err != nil || !s.fresh() {
		return err
	}
	// The stand-in itself is all ours.
	return s.dir.Empty(stagingName)
}

// close releases the lock. With clean the staging folder goes, and the whole
// stand-in if it was not settled; otherwise only where nothing else is in it.
func (s *site) close(clean bool) error {
	var err error
	switch {
	case s.lock == nil:
		return s.forget()
	case clean:
		if s.fresh() {
			err = s.dir.Empty(stagingName)
		}
		// The lock file goes last: without it the next run would not know the folder.
		if err = errors.Join(err, s.stage.Empty(safedir.LockName)); err == nil {
			err = s.removeStaging()
		}
	default:
		if names, listErr := s.stage.Names(); listErr == nil && len(names) == 1 {
			_ = s.removeStaging() // the next run would go on with it
		}
	}
	err = errors.Join(err, safedir.Unlock(s.lock), s.forget())
	s.lock = nil
	return err
}

// removeStaging removes the empty staging folder, and an empty stand-in.
func (s *site) removeStaging() error {
	if err := errors.Join(s.stage.Remove(safedir.LockName), s.dir.Remove(stagingName)); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(s.root, stagingName), err)
	}
	if !s.fresh() {
		return nil
	}
	return safedir.Remove(s.root)
}

// unmake removes the parents that were made, where nothing came to be in them.
func (s *site) unmake() {
	for _, d := range slices.Backward(s.made) {
		_ = safedir.Remove(d.Name())
		_ = d.Close()
	}
	s.made = nil
}

// stamp is a time as it stands in the name of what was set aside.
func stamp(t time.Time) string { return t.UTC().Format("20060102T150405Z") }

// foreign are the entries of a directory that are neither ours nor the file
// system's own.
func foreign(dir string) ([]string, error) {
	names, err := entries(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		switch {
		case name == stagingName, name == "lost+found", name == blockerName, name == blockerName+".tmp":
		case strings.HasPrefix(name, setAsidePrefix), strings.HasPrefix(name, memberAsidePrefix), strings.HasPrefix(name, BringPrefix), walreplay.IsScratch(name):
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// target is a member on this host, with the directories it goes to.
type target struct {
	Member
	data *site
	wal  *site // nil without a separate WAL directory

	state memberState // what lies in place
	inode uint64      // of that folder
	aside []string    // what was set aside, for the result
}

// built is where the member folder lies until it is published, and builtWAL
// where etcd's WAL code writes the log.
func (t *target) built() string { return filepath.Join(t.data.staging(), "member") }

func (t *target) builtWAL() string {
	if t.wal != nil {
		return filepath.Join(t.wal.staging(), "wal")
	}
	return filepath.Join(t.built(), "wal")
}

// live is the member folder where etcd looks for it.
func (t *target) live() string { return filepath.Join(t.data.final, "member") }

// openTargets locks the directories of all members.
func openTargets(members []Member) (ts []*target, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeTargets(ts, false))
			ts = nil
		}
	}()
	for _, m := range members {
		t := &target{Member: m}
		ts = append(ts, t)
		if t.data, err = openSite(m.DataDir); err != nil {
			return ts, fmt.Errorf("data directory of member %s: %w", m.Name, err)
		}
		if m.WALDir == "" {
			continue
		}
		if t.wal, err = openSite(m.WALDir); err != nil {
			return ts, fmt.Errorf("WAL directory of member %s: %w", m.Name, err)
		}
	}
	return ts, nil
}

// survey looks at what lies in place.
func (t *target) survey() (err error) {
	t.state, _, err = memberStateOf(t.live())
	if err != nil {
		return fmt.Errorf("data directory of member %s: %w", t.Name, err)
	}
	if t.state != stateAbsent {
		t.inode, err = inodeOf(t.live())
	}
	return err
}

func (t *target) changed() error {
	return fmt.Errorf("%s is not the folder that was looked at: something else works there: stop it, then run again", t.live())
}

func (t *target) sites() []*site {
	if t.wal == nil {
		return []*site{t.data}
	}
	return []*site{t.data, t.wal}
}

// closeTargets ends a run: see site.close. Parents go last, as several members
// may share one.
func closeTargets(ts []*target, clean bool) error {
	var errs []error
	for _, t := range ts {
		for _, s := range t.sites() {
			if s != nil {
				errs = append(errs, s.close(clean))
			}
		}
	}
	for i := len(ts) - 1; i >= 0; i-- {
		for _, s := range ts[i].sites() {
			if s != nil {
				s.unmake()
			}
		}
	}
	return errors.Join(errs...)
}
