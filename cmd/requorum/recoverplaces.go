package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
)

// places are where the survivors' data lies now. Where an earlier run of the plan,
// which may be nil, was killed while it built over one, that is among what it set
// aside: view is a folder for links to it, of the caller.
func places(survivors []recovery.Survivor, plan *restore.Plan, view string) (map[string]rebuild.Place, error) {
	all := map[string]rebuild.Place{}
	for _, s := range survivors {
		place := rebuild.Place{DataDir: s.DataDir, WALDir: s.WALDir}
		if plan != nil {
			for _, m := range plan.Members {
				if !sameFolder(m.DataDir, s.DataDir) {
					continue
				}
				displaced, err := plan.Displaced(m)
				if err == nil {
					place, err = aside(place, displaced, filepath.Join(view, fmt.Sprintf("survivor-%d", len(all))))
				}
				if err != nil {
					return nil, fmt.Errorf("look for the data of %s that was set aside: %w", s.Name, err)
				}
			}
		}
		all[s.Name] = place
	}
	return all, nil
}

// left refuses data directories in which a restore was begun: what the old member
// left is elsewhere, and a decision without it could lose what it holds.
func left(survivors []recovery.Survivor) error {
	for _, s := range survivors {
		plan, before, err := restore.Incomplete(s.DataDir, s.WALDir)
		if err != nil {
			return fmt.Errorf("the data directory of %s: %w", s.Name, err)
		}
		if plan == nil {
			continue
		}
		text := fmt.Sprintf("%s holds a member that plan %s of %s began to build and did not complete, not what %s left. Give the same command as then to complete it", s.DataDir, plan.ID, when(plan.CreatedAt), s.Name)
		if before.Member != "" {
			text += fmt.Sprintf("; or, to begin anew, put back what it set aside: move %[1]s away, and then %[2]s to %[1]s", filepath.Join(s.DataDir, "member"), before.Member)
		}
		if before.Log != "" {
			text += fmt.Sprintf(", and the files in %s back to %s", before.Log, s.WALDir)
		}
		return usageError{errors.New(text)}
	}
	return nil
}

// aside is a place of links to what was set aside.
func aside(p rebuild.Place, d restore.Displaced, view string) (rebuild.Place, error) {
	if d.Member != "" {
		if err := os.MkdirAll(view, 0o700); err != nil {
			return p, err
		}
		if err := os.Symlink(d.Member, filepath.Join(view, "member")); err != nil {
			return p, err
		}
		p.DataDir = view
	}
	if d.Log == "" || p.WALDir == "" {
		return p, nil
	}
	// Its files may have been moved in part.
	log := filepath.Join(view, "log")
	if err := os.MkdirAll(log, 0o700); err != nil {
		return p, err
	}
	for _, dir := range []string{d.Log, p.WALDir} {
		if d.Member != "" && dir == p.WALDir {
			break // what lies there now is the new member's
		}
		list, err := os.ReadDir(dir)
		if err != nil {
			return p, err
		}
		for _, e := range list {
			if !strings.HasSuffix(e.Name(), ".wal") || strings.HasPrefix(e.Name(), "ffffffffffffffff-") {
				continue
			}
			if err := os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(log, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
				return p, err
			}
		}
	}
	p.WALDir = log
	return p, nil
}

func sameFolder(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
