package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/walreplay"
)

const (
	// stagingName is the folder, inside a data or WAL directory, in which it is
	// built: within the directory, so that a mount point works too.
	stagingName = ".requorum"
	lockName    = "lock"
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
	lock  *os.File
	made  []string // parent folders that had to be made, outermost first
}

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
	}
	if err := s.makeParents(); err != nil {
		return s, err
	}
	if err := os.MkdirAll(s.staging(), 0o700); err != nil {
		return s, fmt.Errorf("build in %s: %w", s.root, err)
	}
	if s.lock, err = lockFile(filepath.Join(s.staging(), lockName)); err != nil {
		return s, err
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

// makeParents makes the folders above a directory that does not exist yet.
func (s *site) makeParents() error {
	for dir := filepath.Dir(s.root); ; dir = filepath.Dir(dir) {
		there, err := exists(dir)
		if err != nil {
			return err
		}
		if there {
			break
		}
		s.made = append([]string{dir}, s.made...)
	}
	for _, dir := range s.made {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := syncDir(filepath.Dir(dir)); err != nil {
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
	beside := besideOf(final)
	there, err := exists(beside)
	if err != nil || !there {
		return err
	}
	lock, err := lockFile(filepath.Join(beside, stagingName, lockName))
	if errors.Is(err, os.ErrNotExist) { // killed before it had a lock
		return os.RemoveAll(beside)
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(beside), lock.Close())
}

// lockFile takes the lock or fails with ErrInUse. The kernel releases it when
// the process ends, however that happens.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			err = fmt.Errorf("%s %w by another restore (%w)", filepath.Dir(filepath.Dir(path)), ErrInUse, err)
			return nil, errors.Join(err, f.Close())
		}
		// The run before may have removed the file between our two calls: then
		// this lock is on a file that nobody else can see.
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

func (s *site) staging() string { return filepath.Join(s.root, stagingName) }

// fresh tells whether the directory does not exist yet under its own name.
func (s *site) fresh() bool { return s.root != s.final }

// settle gives a fresh directory its own name. An existing one that is not
// empty makes the rename fail: nothing is overwritten.
func (s *site) settle() error {
	if !s.fresh() {
		return nil
	}
	if err := move(s.root, s.final); err != nil {
		return fmt.Errorf("publish %s: %w: if something created that directory meanwhile, stop it and run again", s.final, err)
	}
	s.root = s.final
	return nil
}

// sweep removes what a dead run left in staging: it was never in use.
func (s *site) sweep() error {
	names, err := entries(s.staging())
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != lockName {
			if err := os.RemoveAll(filepath.Join(s.staging(), name)); err != nil {
				return err
			}
		}
	}
	if !s.fresh() {
		return nil
	}
	// The stand-in itself is all ours.
	names, err = entries(s.root)
	for _, name := range names {
		if name != stagingName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.root, name)))
		}
	}
	return err
}

// close releases the lock. With clean the staging folder goes, and the whole
// stand-in if it was not settled; otherwise only where nothing else is in it.
func (s *site) close(clean bool) error {
	if s.lock == nil {
		return nil
	}
	var err error
	if clean {
		ours := s.staging()
		if s.fresh() {
			ours = s.root
		}
		err = os.RemoveAll(ours)
	} else {
		_ = os.Remove(filepath.Join(s.staging(), lockName))
		_ = os.Remove(s.staging()) // fails, as it should, when it is not empty
		if s.fresh() {
			_ = os.Remove(s.root)
		}
	}
	err = errors.Join(err, s.lock.Close())
	s.lock = nil
	return err
}

// unmake removes the parents that were made, where nothing came to be in them.
func (s *site) unmake() {
	for i := len(s.made) - 1; i >= 0; i-- {
		_ = os.Remove(s.made[i])
	}
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

// sameDevice tells whether two paths lie in one mounted file system, as far as
// numbers tell.
func sameDevice(a, b os.FileInfo) bool {
	x, okA := a.Sys().(*syscall.Stat_t)
	y, okB := b.Sys().(*syscall.Stat_t)
	return okA && okB && x.Dev == y.Dev
}
