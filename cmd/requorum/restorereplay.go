package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/walreplay"
)

// bytesPerKey is what etcd's index takes in memory for each key, about.
const bytesPerKey = 400

// replayOptions are how this restore replays the log, without a progress.
func (o *buildOptions) replayOptions(g *globals, plan *restore.Plan, meter *meter) (walreplay.Options, error) {
	dir, err := o.scratchDir(plan)
	if err != nil {
		return walreplay.Options{}, err
	}
	return walreplay.Options{
		ScratchDir: dir, MinLeaseTTL: o.point.minLeaseTTL, PersistCheckpoints: o.point.checkpoints, SourceVersion: o.point.sourceVersion, Logger: g.logger(),
		Stamps: o.point.stampCheck(),
		Progress: func(p walreplay.Phase, done, total int64) {
			if p == walreplay.PhaseBase {
				meter.update(string(p), done, total)
				return
			}
			meter.count(string(p), done, total)
		},
	}, nil
}

// scratchDir is where to replay: as asked for, or on the file system that the
// result goes to.
func (o *buildOptions) scratchDir(plan *restore.Plan) (string, error) {
	if o.point.scratchDir != "" {
		info, err := os.Stat(o.point.scratchDir)
		if err == nil && !info.IsDir() {
			err = errors.New("it is no folder")
		}
		if err != nil {
			return "", usageError{fmt.Errorf("--scratch-dir: %w", err)}
		}
		return filepath.Abs(o.point.scratchDir)
	}
	if o.toSnapshot != "" {
		return above(o.toSnapshot)
	}
	dir := ""
	if plan != nil {
		for _, m := range plan.Members {
			if dir == "" || m.Name == o.name {
				dir = m.DataDir
			}
		}
	} else {
		name := o.name
		if name == "" {
			name, _, _ = strings.Cut(o.req.InitialCluster, "=")
		}
		dir = strings.ReplaceAll(o.req.DataDir, "{name}", name)
	}
	if dir == "" {
		return "", usageError{errors.New("no data directory: give --data-dir, with {name} in it for several members on one host")}
	}
	beside, err := above(dir)
	if err != nil || o.dryRun {
		return beside, err
	}
	// A data directory that is a mount of its own: what lies beside it is on
	// another file system, and often not to be written to.
	if info, err := os.Stat(dir); err == nil && info.IsDir() && (!sameFileSystem(dir, beside) || unix.Access(beside, unix.W_OK|unix.X_OK) != nil) {
		return filepath.Abs(dir)
	}
	return beside, nil
}

// above is the folder that a path is in, whether or not it is there.
func above(path string) (string, error) {
	path, err := filepath.Abs(path)
	return filepath.Dir(path), err
}

func sameFileSystem(a, b string) bool {
	device := func(path string) any {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return st.Dev
		}
		return nil
	}
	return device(a) == device(b)
}

// resolve finds the point that was asked for in the source's history.
func (s *restoreSource) resolve(ctx context.Context, g *globals, o *restoreOptions, t walreplay.Target, base string) error {
	meter := g.newMeter()
	defer meter.finish()
	var opts walreplay.Options
	var err error
	if t.NeedsReplay() {
		if opts, err = o.replayOptions(g, nil, meter); err != nil {
			return err
		}
	}
	if s.point, err = s.history.Resolve(ctx, t, base, opts); err != nil {
		return err
	}
	s.manifest, s.target = s.point.Base.Manifest, o.point.asked()
	s.highest = max(s.highest, s.history.HighestRevision(), s.point.Reached)
	if s.point.Change != nil {
		s.highest = max(s.highest, s.point.Change.Revision)
	}
	if s.point.AsIs {
		s.image, s.notes = s.point.Base.Image, s.pointNotes()
		return nil
	}
	s.image, s.notes = s.point.Prospect(), append(s.pointNotes(), s.memoryNote())
	return nil
}

// pointNotes are what a user should know of the point.
func (s *restoreSource) pointNotes() []string {
	notes := s.point.Notes
	if s.point.Change != nil {
		notes = append(notes, s.point.Change.String())
	}
	return notes
}

func (s *restoreSource) memoryNote() string {
	p := s.point
	if p.Base.Manifest != nil && p.Base.Manifest.Keys.Count != nil {
		keys := *p.Base.Manifest.Keys.Count + int64(p.Entries())
		return fmt.Sprintf("the replay needs about %s of memory (%d bytes a key, of up to %d keys), beside the database itself in the page cache", size(bytesPerKey*keys), bytesPerKey, keys)
	}
	return fmt.Sprintf("the replay needs about %d bytes of memory a key, beside the database itself in the page cache", bytesPerKey)
}

// rebuild makes the image of the point, or of the plan's recipe.
func (s *restoreSource) rebuild(ctx context.Context, g *globals, o *restoreOptions, plan *restore.Plan) error {
	if s.point == nil && s.recipe == nil || s.point != nil && s.point.AsIs {
		return nil
	}
	meter := g.newMeter()
	defer meter.finish()
	opts, err := o.replayOptions(g, plan, meter)
	if err != nil {
		return err
	}
	if s.recipe != nil {
		s.rebuilt, err = s.history.Repeat(ctx, s.recipe, opts)
	} else {
		s.rebuilt, err = s.history.Rebuild(ctx, s.point, opts)
	}
	if err != nil {
		return s.nameOlder(ctx, g, err)
	}
	s.image = s.rebuilt
	if s.point == nil || s.point.MaxRevision == 0 || s.rebuilt.Recipe == nil {
		return nil
	}
	if c := s.rebuilt.Recipe; c.Index < s.history.Reach(s.rebuilt.Base) {
		s.highest = max(s.highest, s.point.MaxRevision+1) // the entry that was not replayed made it
	} else {
		s.notes = append(s.notes, fmt.Sprintf("what can be replayed ends at raft index %d, before the cluster went on to revision %d: changes of leases, users or alarms that may have followed at revision %d are not in it",
			c.Index, c.Revision+1, c.Revision))
	}
	return nil
}

// phases are how long the replay took, before the phases of the restore.
func (s *restoreSource) phases() []restore.PhaseTime {
	var all []restore.PhaseTime
	if s.rebuilt != nil {
		for _, p := range s.rebuilt.Phases {
			all = append(all, restore.PhaseTime{Phase: restore.Phase(p.Phase), Duration: p.Took})
		}
	}
	return all
}
