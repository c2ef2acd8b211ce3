package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errNoExchange says that a file system cannot swap two names.
var errNoExchange = errors.New("this file system cannot swap two folders in one step")

// publish puts all members in place, blocked: the separate WAL directories
// first, so that a member folder never stands without a WAL. A context that
// ends stops it between two members, and Execute rolls back.
func (r *run) publish(ctx context.Context) error {
	defer r.phase(PhasePublish)()
	for _, t := range r.targets {
		if t.wal == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.publishWAL(t); err != nil {
			return fmt.Errorf("publish the log of member %s: %w", t.Name, err)
		}
	}
	for _, t := range r.targets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.publishMember(t); err != nil {
			return fmt.Errorf("publish member %s: %w", t.Name, err)
		}
	}
	return nil
}

// publishWAL blocks a separate WAL directory and sets aside what is in it,
// entry by entry: it may be a mount's root, which has one name only. The new
// segment stays in its staging folder until finish.
func (r *run) publishWAL(t *target) error {
	before, err := readBlocker(t.wal.root)
	if err != nil {
		return err
	}
	r.opts.step("block the WAL directory of " + t.Name)
	if err := writeBlocker(t.wal.root, newBlocker(r.plan, t.Member)); err != nil {
		return err
	}
	if before == nil {
		r.onUndo(func() error { return removeBlocker(t.wal.root) })
	}
	if t.wal.fresh() {
		r.opts.step("publish the WAL directory of " + t.Name)
		beside := t.wal.root
		if err := t.wal.settle(); err != nil {
			return err
		}
		r.onUndo(func() error {
			t.wal.root = beside
			return move(t.wal.final, beside)
		})
		return nil
	}
	names, err := foreign(t.WALDir)
	if err != nil || len(names) == 0 {
		return err
	}
	aside, err := freeName(filepath.Join(t.WALDir, setAsidePrefix+r.stamp))
	if err != nil {
		return err
	}
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	r.onUndo(func() error { return os.Remove(aside) })
	for _, name := range names {
		from, to := filepath.Join(t.WALDir, name), filepath.Join(aside, name)
		r.opts.step("set aside " + name + " of the WAL directory of " + t.Name)
		if err := move(from, to); err != nil {
			return err
		}
		r.onUndo(func() error { return move(to, from) })
	}
	t.aside = append(t.aside, aside)
	return nil
}

// publishMember puts the member folder in place.
func (r *run) publishMember(t *target) error {
	if t.data.fresh() {
		if err := move(t.built(), filepath.Join(t.data.root, "member")); err != nil {
			return err
		}
		r.opts.step("publish the data directory of " + t.Name)
		beside := t.data.root
		if err := t.data.settle(); err != nil {
			return err
		}
		r.onUndo(func() error {
			t.data.root = beside
			return move(t.data.final, beside)
		})
		return nil
	}
	switch t.state {
	case stateAbsent:
		r.opts.step("publish the member folder of " + t.Name)
		if err := move(t.built(), t.live()); err != nil {
			return err
		}
		r.onUndo(func() error { return move(t.live(), t.built()) })
		return nil
	case stateUnfinished:
		return r.replaceUnfinished(t)
	default:
		return r.swapUsers(t)
	}
}

// swapUsers swaps the user's member folder for the new one. The new one gets
// the set-aside name first, so that the swap itself gives the user's folder its
// final name, and staging never holds anything but our own.
func (r *run) swapUsers(t *target) error {
	aside, err := freeName(filepath.Join(t.DataDir, memberAsidePrefix+r.stamp))
	if err != nil {
		return err
	}
	r.opts.step("put the new member folder of " + t.Name + " beside the old one")
	if err := move(t.built(), aside); err != nil {
		return err
	}
	r.onUndo(func() error { return move(aside, t.built()) })
	r.opts.step("swap the member folders of " + t.Name)
	if err := r.swap(aside, t.live()); err != nil {
		if errors.Is(err, errNoExchange) {
			return fmt.Errorf("%s: %w: with etcd stopped, move %s to a name of your choice, and run again", t.DataDir, err, t.live())
		}
		return err
	}
	r.onUndo(func() error { return r.swap(aside, t.live()) })
	t.aside = append(t.aside, aside)
	return nil
}

// replaceUnfinished puts the new folder where an unfinished restore lies, which
// no etcd ever started from. The old one goes with the staging folder.
func (r *run) replaceUnfinished(t *target) error {
	r.opts.step("replace the unfinished member folder of " + t.Name)
	err := r.swap(t.built(), t.live())
	if !errors.Is(err, errNoExchange) {
		return err
	}
	// The moment without a member folder is no worse than what was there before
	// the unfinished run: on such a file system it had found none.
	old := filepath.Join(t.data.staging(), "unfinished")
	if err := move(t.live(), old); err != nil {
		return err
	}
	r.opts.step("put the member folder of " + t.Name + " in the place of the unfinished one")
	return move(t.built(), t.live())
}

func (r *run) swap(a, b string) error {
	if err := r.opts.swap(a, b); err != nil {
		return err
	}
	return errors.Join(syncDir(filepath.Dir(a)), syncDir(filepath.Dir(b)))
}

// freeName adds a number where a name is taken.
func freeName(path string) (string, error) {
	for i := 1; ; i++ {
		name := path
		if i > 1 {
			name = fmt.Sprintf("%s-%d", path, i)
		}
		if there, err := exists(name); err != nil || !there {
			return name, err
		}
	}
}

func (r *run) onUndo(f func() error) { r.undo = append(r.undo, f) }
