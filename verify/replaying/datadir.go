package replaying

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// CheckDataDir checks a stopped member's data directory, whose files are only
// read; walDir is empty where the log is in dir. Two things can be proved of it,
// each a check of its own:
//
//   - of the log: the entries after the database can be applied to it, to the very
//     end;
//   - of the database: it is what an older image of its own (one that a leader
//     sent, *.snap.db, or none where the log still begins with the cluster's first
//     entry) and the log give. Mostly there is no such image, since etcd purges
//     its log: that is Unchecked, and a repository's backups are what can prove it.
func CheckDataDir(ctx context.Context, dir, walDir string, o Options) ([]report.Check, error) {
	log := newChecking(restore.LogDir(dir, walDir), o)
	log.member = true
	h, err := walreplay.OpenDataDir(ctx, dir, walDir)
	if err != nil {
		log.err = err
		check, err := log.end(ctx)
		if err != nil {
			return nil, err
		}
		return []report.Check{check}, nil
	}
	checks, err := dataDir(ctx, h, dir, log)
	return checks, errors.Join(err, h.Close())
}

func dataDir(ctx context.Context, h *walreplay.History, dir string, log *checking) ([]report.Check, error) {
	all := h.Bases()
	i := slices.IndexFunc(all, func(b *walreplay.Base) bool { return b.ID == "db" })
	path := filepath.Join(dir, "member", "snap", "db")
	state := newChecking(path, log.o)
	state.member = true
	if i < 0 {
		log.err = unchecked("there is no database %s that could be read, to apply the log to: the structure level says why", path)
		state.err = log.err
	} else {
		var r *walreplay.Rebuilt
		if r, log.err = log.newest(ctx, h, all[i]); r != nil {
			log.err = r.Close()
		}
		state.began = time.Now()
		state.err = state.memberState(ctx, h, all[i], path)
	}
	var checks []report.Check
	for _, k := range []*checking{log, state} {
		check, err := k.end(ctx)
		if err != nil {
			return checks, err
		}
		checks = append(checks, check)
	}
	return checks, nil
}

// memberState holds a member's database against an older image and the log.
func (k *checking) memberState(ctx context.Context, h *walreplay.History, db *walreplay.Base, path string) error {
	var older *walreplay.Base
	for _, b := range slices.Backward(h.Bases()) {
		if b.ID != db.ID && b.Index() < db.Index() && h.Reach(b) >= db.Index() {
			older = b
			break
		}
	}
	if older == nil {
		return unchecked("there is no older image of it that its log goes on from: the log's beginning is purged, as etcd does. Verify a backup of the cluster instead")
	}
	own, err := snapshot.OpenFile(path)
	if err != nil {
		return err
	}
	p := &proof{checking: k, h: h, base: older, own: Database{path, own}, facts: db.Facts}
	err = p.run(ctx)
	if damaged := (*baseError)(nil); errors.As(err, &damaged) {
		return unchecked("%v, and it is what its log goes on from", damaged)
	}
	return err
}
