package synthetic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay"
)

// Make makes a full snapshot of the newest backup of a timeline that is not known
// to be bad, and the log after it to its end, and keeps it in the repository.
func Make(ctx context.Context, o Options) (*snapshot.Manifest, error) {
	o = o.withDefaults()
	started := o.Now()
	if o.ID != "" {
		if err := snapshot.Taken(ctx, o.Repo, o.Timeline, o.ID); err != nil {
			return nil, err
		}
	}
	p, err := PlanOf(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, s := range p.Skipped {
		o.Logger.Warn("not begun from", "reason", s)
	}
	o.Logger.Info("synthetic full snapshot", "base", p.Base.ID, "base_index", p.Base.Facts.RaftIndex, "index", p.Index, "entries", p.Entries, "memory", p.Memory, "scratch", p.Scratch)
	r, err := p.history.Rebuild(ctx, p.point, o.walreplay())
	if err != nil {
		return nil, fmt.Errorf("replay the log on backup %s: %w", p.Base.ID, err)
	}
	m, err := p.keep(ctx, o, r, started)
	return m, errors.Join(err, r.Close())
}

// keep stores what was rebuilt.
func (p *Plan) keep(ctx context.Context, o Options, r *walreplay.Rebuilt, started time.Time) (*snapshot.Manifest, error) {
	if err := cut(r.Path()); err != nil {
		return nil, err
	}
	image, err := snapshot.OpenFile(r.Path())
	if err != nil {
		return nil, err
	}
	keys, err := p.sound(ctx, o, r, image)
	if err != nil {
		return nil, err
	}
	synthesis, err := p.synthesis(ctx, r)
	if err != nil {
		return nil, err
	}
	hash := r.Recipe.HashKV
	hash.Obtained = "computed from the database that the replay gave"
	return snapshot.Store(ctx, snapshot.StoreRequest{
		Repo: o.Repo, Timeline: o.Timeline, ID: o.ID, Attempt: o.Attempt, Image: named{image, r.Name()}, Started: started,
		Version: r.Recipe.SourceVersion, ClusterID: p.Base.Source.ClusterID, Synthesis: synthesis, HashKV: hash, Keys: keys,
		Codec: o.Codec, Tool: o.Tool, Labels: o.Labels, ReadBack: o.ReadBack, Now: o.Now,
		Progress: func(s snapshot.Progress) { o.Progress(s.Phase, s.Done, s.Total) },
	})
}

// named calls the scratch file what it is.
type named struct {
	*snapshot.File
	name string
}

// Name tells the base and the point.
func (n named) Name() string { return n.name }

// cut ends a database file behind its last page: bbolt grows a file in large
// steps, and a snapshot that a member sends has no such rest.
func cut(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	db, err := pages.Open(f, info.Size())
	if err != nil {
		return fmt.Errorf("look into what was rebuilt: %w", err)
	}
	return f.Truncate(db.Size())
}

// sound goes through the whole database, and counts its keys.
func (p *Plan) sound(ctx context.Context, o Options, r *walreplay.Rebuilt, image *snapshot.File) (_ snapshot.Keys, err error) {
	f, err := os.Open(r.Path())
	if err != nil {
		return snapshot.Keys{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	found, err := structure.Check(ctx, f, image.Size(), structure.Options{MaxFindings: 1, Progress: func(done, total int64) { o.Progress("structure", done, total) }})
	if err != nil {
		return snapshot.Keys{}, err
	}
	if len(found.Findings) > 0 {
		return snapshot.Keys{}, &snapshot.DamagedError{Object: r.Name(), Offset: -1, Err: fmt.Errorf("it is no database that etcd can have written: %s", found.Findings[0])}
	}
	if found.HashKV.Hash != r.Recipe.HashKV.Hash {
		return snapshot.Keys{}, fmt.Errorf("%s: HashKV is %d by one reading and %d by another: this is a mistake in requorum, please report it", r.Name(), found.HashKV.Hash, r.Recipe.HashKV.Hash)
	}
	return snapshot.Keys{Obtained: "counted in the database that the replay gave", Count: &found.Keys}, nil
}

// synthesis is what the manifest says of how it was made.
func (p *Plan) synthesis(ctx context.Context, r *walreplay.Rebuilt) (*snapshot.Synthesis, error) {
	c := r.Recipe
	s := &snapshot.Synthesis{
		Base: p.Base.ID, BaseIndex: c.BaseIndex, BaseDatabaseSHA256: p.Base.DatabaseSHA256, Origin: p.Base.ID, Generation: 1,
		Entries: c.Entries, ReplayedChain: c.Replayed.String(), StampsEqual: r.Stamps.Equal, StampsPassed: r.Stamps.Passed,
		MinLeaseTTL: c.MinLeaseTTL, PersistCheckpoints: c.PersistCheckpoints,
	}
	if before := p.Base.Synthesis; before != nil {
		s.Origin, s.Generation = before.Origin, before.Generation+1
	}
	if c.Chain != nil {
		s.ArchiveChain = c.Chain.String()
	}
	var err error
	if s.Observed, err = p.history.Observed(ctx, c.Index); err != nil {
		return nil, fmt.Errorf("find out when entry %d was written: %w", c.Index, err)
	}
	return s, nil
}
