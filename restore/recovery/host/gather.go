// A rebuild works in a folder of its own, beside the new member's files.

package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/safedir"
)

// bringFolder is where a run gathers: in the data directory, whose file system has
// to have the room, or beside it while there is none. Several members may have
// their directories beside each other: each has folders of its own. So has each start of the
// machine: what is gathered lives for minutes, and to sync it would take as long as to copy it.
func (s *rebuilding) bringFolder() (string, error) {
	m := s.Config.Member
	dir, _, err := safedir.Nearest(m.DataDir)
	return filepath.Join(dir, restore.BringPrefix+s.run+"-"+machineStart()+"@"+m.Name), err
}

// machineStart distinguishes one start of this machine from another. Where the system has no such
// name, nothing is gone on with.
func machineStart() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id") //nolint:forbidigo // the kernel's file
	if err != nil || len(id) < 8 {
		return rand.Text()
	}
	return string(id[:8])
}

// gather is a folder that only this user gets into, whoever owns the directory it
// lies in: etcd's user can give it another name, and put something else in its place.
type gather struct {
	path string
	dir  *safedir.Dir
	lock *os.File
}

func openGather(path string) (*gather, error) {
	dir, err := safedir.Private(path)
	if err != nil {
		return nil, fmt.Errorf("a folder to gather in: %w", err)
	}
	g, err := lockGather(path, dir)
	if err != nil {
		return nil, fmt.Errorf("a folder to gather in: %w", err)
	}
	return g, nil
}

// lockGather takes the folder over, and closes it where it fails.
func lockGather(path string, dir *safedir.Dir) (*gather, error) {
	g := &gather{path: path, dir: dir}
	var gone bool
	var err error
	if g.lock, gone, err = g.dir.Lock(); err == nil && gone {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	if errors.Is(err, safedir.ErrLocked) {
		err = fmt.Errorf("%w: let the other 'requorum host' end, or end it", err)
	}
	if err != nil {
		return nil, errors.Join(err, g.dir.Close())
	}
	return g, nil
}

func (g *gather) close() error { return errors.Join(safedir.Unlock(g.lock), g.dir.Close()) }

// remove removes what was gathered. The lock file goes last: without it the next
// attempt would not know the folder.
func (g *gather) remove() error {
	if err := g.dir.Empty(safedir.LockName); err != nil {
		return err
	}
	return errors.Join(g.dir.Remove(safedir.LockName), safedir.Remove(g.path))
}

// removeOld removes what other runs left, and what this one left elsewhere. Anything
// else of such a name, as etcd's user can give it to a folder of root's, stays.
func (s *rebuilding) removeOld(keep string) error {
	var errs []error
	m := s.Config.Member
	above, _, err := safedir.Nearest(filepath.Dir(m.DataDir))
	if err != nil {
		return err
	}
	for _, dir := range []string{m.DataDir, above} {
		names, err := safedir.Names(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, name := range names {
			path := filepath.Join(dir, name)
			if !strings.HasPrefix(name, restore.BringPrefix) || !strings.HasSuffix(name, "@"+m.Name) || path == keep {
				continue
			}
			d, err := safedir.OpenPrivate(path)
			if err != nil { // it may be anybody's
				continue
			}
			g, err := lockGather(path, d)
			if err == nil {
				err = errors.Join(g.remove(), g.close())
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what earlier recoveries gathered: %w", err)
	}
	return nil
}

// checkSpace fails where a folder's file system has no room for so many bytes.
func checkSpace(dir string, need int64, what string) error {
	free, known, err := safedir.Free(dir)
	if err != nil || !known || free >= need {
		return err
	}
	return fmt.Errorf("file system of %s: %w: %d bytes are needed for %s, %d are free, %d short", dir, restore.ErrNoSpace, need, what, free, need-free)
}
