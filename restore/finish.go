package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// finish sets the members of this host free, now that all are in place. First
// every one of them stops to be replaceable, then the blockers go. It can be
// repeated from any point.
func (r *run) finish() error {
	defer r.phase(PhaseFinish)()
	for _, t := range r.targets {
		r.opts.step("seal " + t.Name)
		if err := t.seal(); err != nil {
			return fmt.Errorf("complete member %s: %w", t.Name, err)
		}
	}
	for _, t := range r.targets {
		if err := r.setFree(t); err != nil {
			return fmt.Errorf("complete member %s: %w", t.Name, err)
		}
	}
	return nil
}

// seal gives the record its final name.
func (t *target) seal() error {
	err := move(filepath.Join(t.live(), unfinishedName), filepath.Join(t.live(), recordName))
	if errors.Is(err, fs.ErrNotExist) { // sealed by an earlier run
		return nil
	}
	return err
}

func (r *run) setFree(t *target) error {
	own := filepath.Join(t.live(), "wal")
	if t.wal == nil {
		r.opts.step("unblock " + t.Name)
		return removeBlocker(own)
	}
	// The blocker of the member's own WAL folder goes last: by it another run
	// sees that this one is not complete.
	if b, err := readBlocker(t.WALDir); err != nil {
		return err
	} else if b != nil {
		if err := r.placeSegment(t); err != nil {
			return err
		}
		r.opts.step("unblock the WAL directory of " + t.Name)
		if err := removeBlocker(t.WALDir); err != nil {
			return err
		}
	}
	r.opts.step("unblock " + t.Name)
	if _, err := os.Stat(own); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := removeBlocker(own); err != nil {
		return err
	}
	if err := os.Remove(own); err != nil {
		return err
	}
	return syncDir(t.live())
}

// placeSegment moves the new log into its directory, which is blocked.
func (r *run) placeSegment(t *target) error {
	at, err := segmentAt(t.wal)
	if err != nil {
		return err
	}
	to := filepath.Join(t.WALDir, firstSegment)
	switch at {
	case "":
		return fmt.Errorf("the new log of %s is nowhere: %s was changed since it was published; restore anew, setting aside what is there", t.Name, t.WALDir)
	case to:
		return nil
	}
	r.opts.step("move the log of " + t.Name + " into place")
	return move(at, to)
}
