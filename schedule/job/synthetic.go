package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
)

// Errors that a caller may want to distinguish. That another attempt was faster is
// snapshot.ErrTaken; damage is a *snapshot.DamagedError.
var (
	// ErrNothingNew says that the newest backup is at the end of the log already.
	ErrNothingNew = errors.New("there is nothing new in the log")
	// ErrNoBase says that there is no backup to begin from.
	ErrNoBase = errors.New("there is no full snapshot to begin from")
	// ErrLogEnds says that the log does not lead on from the backup to its end.
	ErrLogEnds = errors.New("the archived log does not lead on")
	// ErrPlain says that what is encrypted would have been stored in the clear.
	ErrPlain = errors.New("no recipients were given, and what it would be made from is encrypted")
)

// SyntheticOptions say what to make, of what, and where to keep it.
type SyntheticOptions struct {
	Repo     *repository.Repository
	Timeline repository.TimelineID
	// ID and Attempt are as in a snapshot.Request.
	ID      string
	Attempt int
	// Identities open the backup and the log, where they are encrypted.
	Identities []age.Identity
	// Codec says how the new snapshot is stored: encrypted, with recipients.
	Codec codec.Options
	// ScratchDir is where the database is built.
	ScratchDir string
	Tool       string // for the manifest
	Labels     map[string]string
	// Progress may be nil. It is called from one goroutine: the phases are those
	// of walreplay, "structure" in bytes, and those of snapshot.Store.
	Progress func(phase string, done, total int64)
}

func (o SyntheticOptions) withDefaults() SyntheticOptions {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	return o
}

func (o SyntheticOptions) walreplay() walreplay.Options {
	return walreplay.Options{
		ScratchDir:       o.ScratchDir,
		CheckpointHashes: walreplay.EveryCheckpointHash, CheckBase: replaying.CheckBase,
		Progress: func(p walreplay.Phase, done, total int64) { o.Progress(string(p), done, total) },
	}
}

// errGap is why the end of the log cannot be reached.
var errGap = errors.New("the log goes on after a gap")

// syntheticPlan is what MakeSynthetic would do.
type syntheticPlan struct {
	Base    *snapshot.Manifest // to begin from
	Index   uint64             // the raft index of the new snapshot
	Entries uint64             // to replay
	// Skipped are newer backups that are not begun from, with the reason.
	Skipped []string

	history *walreplay.History
	point   *walreplay.Point
}

// planSynthetic says what MakeSynthetic would do: it lists the backups and the log, reads the
// verdicts, and no entry. Its errors are MakeSynthetic's.
func planSynthetic(ctx context.Context, o SyntheticOptions) (*syntheticPlan, error) {
	o = o.withDefaults()
	c, err := snapshot.ReadBackups(ctx, o.Repo, o.Timeline)
	if err != nil {
		return nil, err
	}
	p := &syntheticPlan{}
	if err := p.choose(ctx, c, o); err != nil {
		return nil, err
	}
	if p.history, err = walreplay.NewArchives(o.Repo, o.Identities...).History(ctx, c, o.Timeline); err != nil {
		return nil, err
	}
	if p.point, err = p.history.Resolve(ctx, walreplay.Target{Kind: walreplay.Latest}, p.Base.ID, o.walreplay()); err != nil {
		return nil, p.due(err)
	}
	if !p.history.Unbroken(p.point.Base) {
		return nil, p.due(fmt.Errorf("%s, at raft index %d, can be replayed up to raft index %d only, and %w", p.point.Base.Name, p.Base.Facts.RaftIndex, p.point.Last, errGap))
	}
	p.Index, p.Entries = p.point.Last, p.point.Entries()
	if p.Entries == 0 {
		return nil, fmt.Errorf("%w of timeline %s: backup %s is at its end, raft index %d", ErrNothingNew, o.Timeline, p.Base.ID, p.Base.Facts.RaftIndex)
	}
	return p, p.mayWrite(o)
}

// due says that nothing can be made of this log, unless the error is of something
// else.
func (p *syntheticPlan) due(err error) error {
	var damaged *walreplay.LogError
	if !errors.As(err, &damaged) && !errors.Is(err, snapshot.ErrNoBackup) && !errors.Is(err, errGap) {
		return err
	}
	return fmt.Errorf("%w from backup %s: %w: take a full snapshot of a member", ErrLogEnds, p.Base.ID, err)
}

// choose finds the newest backup that is not known to be bad.
func (p *syntheticPlan) choose(ctx context.Context, c *snapshot.Catalog, o SyntheticOptions) error {
	chain, err := verdict.ReadAll(ctx, o.Repo)
	if err != nil {
		return fmt.Errorf("read which backups are damaged: %w", err)
	}
	for _, d := range c.Damaged {
		p.Skipped = append(p.Skipped, d.Err.Error())
	}
	for _, m := range slices.Backward(c.Manifests) {
		word, bad := chain.Damaged(m)
		switch {
		case bad:
			p.Skipped = append(p.Skipped, fmt.Sprintf("backup %s was found damaged by verdict %d", m.ID, word.Verdict.Sequence))
		case c.CheckEncrypted(m) != nil:
			p.Skipped = append(p.Skipped, c.CheckEncrypted(m).Error())
		case m.Facts.RaftIndex == 0:
			p.Skipped = append(p.Skipped, fmt.Sprintf("backup %s does not say its raft index: etcd 3.4 notes it with the first change of a key", m.ID))
		default:
			p.Base = m
			return nil
		}
	}
	err = fmt.Errorf("%w in timeline %s", ErrNoBase, o.Timeline)
	for _, s := range p.Skipped {
		err = errors.Join(err, errors.New(s))
	}
	return err
}

// mayWrite refuses to store in the clear what was encrypted.
func (p *syntheticPlan) mayWrite(o SyntheticOptions) error {
	if len(o.Codec.Recipients) > 0 || !p.Base.Object.Encrypted() && !p.history.Encrypted(p.Base.Facts.RaftIndex+1, p.Index) {
		return nil
	}
	return fmt.Errorf("make a full snapshot of backup %s and the log: %w: name recipients", p.Base.ID, ErrPlain)
}

// MakeSynthetic makes a new full snapshot of the newest one and the archived
// log after it, without reading any member of the cluster.
//
// It promises:
//
//  1. What is stored is the state at the end of the log: the same object and the
//     same kind of manifest as those of a snapshot that was read from a member,
//     and etcd's own tools take it. The manifest says what it was made from.
//  2. It is begun from the newest backup that is not known to be bad. Where the log
//     does not lead on from there to its end (a gap, damage), nothing is made: a
//     full snapshot of a member is due then.
//  3. The database is gone through before it is stored, and compared with what live
//     members served, as far as the archive has that. What differs is not stored.
//  4. What was encrypted is not stored in the clear.
//  5. What fails or is interrupted leaves no backup; scratch files are removed, at
//     the latest by the next run in the same folder.
//
// It does not prove that the log, the backup before it, or the replay are right:
// the next snapshot of a member does, when it is verified from an earlier one of a
// member (see the level replay).
func MakeSynthetic(ctx context.Context, o SyntheticOptions) (*snapshot.Manifest, error) {
	o = o.withDefaults()
	started := time.Now()
	if o.ID != "" {
		if err := snapshot.Taken(ctx, o.Repo, o.Timeline, o.ID); err != nil {
			return nil, err
		}
	}
	p, err := planSynthetic(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := p.history.Rebuild(ctx, p.point, o.walreplay())
	if err != nil {
		return nil, fmt.Errorf("replay the log on backup %s: %w", p.Base.ID, err)
	}
	m, err := p.keep(ctx, o, r, started)
	return m, errors.Join(err, r.Close())
}

// keep stores what was rebuilt.
func (p *syntheticPlan) keep(ctx context.Context, o SyntheticOptions, r *walreplay.Rebuilt, started time.Time) (*snapshot.Manifest, error) {
	if err := cutFile(ctx, r.Path()); err != nil {
		return nil, err
	}
	image, err := snapshot.OpenUnsynced(r.Path())
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
		Repo: o.Repo, Timeline: o.Timeline, ID: o.ID, Attempt: o.Attempt, Image: namedFile{image, r.Name()}, Started: started,
		Version: r.Recipe.SourceVersion, ClusterID: p.Base.Source.ClusterID, Synthesis: synthesis, HashKV: hash, Keys: keys,
		Codec: o.Codec, Tool: o.Tool, Labels: o.Labels,
		Progress: func(s snapshot.Progress) { o.Progress(s.Phase, s.Done, s.Total) },
	})
}

// namedFile calls the scratch file what it is.
type namedFile struct {
	*snapshot.File
	name string
}

// Name says what the base and the point are.
func (n namedFile) Name() string { return n.name }

// cutFile ends a database file behind its last page: bbolt grows a file in large
// steps, and a snapshot that a member sends has no such rest.
func cutFile(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	db, err := boltfile.Open(ctx, f, info.Size())
	if err != nil {
		return fmt.Errorf("look into what was rebuilt: %w", err)
	}
	return f.Truncate(db.Size())
}

// sound goes through the whole database, and counts its keys.
func (p *syntheticPlan) sound(ctx context.Context, o SyntheticOptions, r *walreplay.Rebuilt, image *snapshot.File) (_ snapshot.Keys, err error) {
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
func (p *syntheticPlan) synthesis(ctx context.Context, r *walreplay.Rebuilt) (*snapshot.Synthesis, error) {
	c := r.Recipe
	s := &snapshot.Synthesis{
		Base: p.Base.ID, BaseIndex: c.BaseIndex, BaseDatabaseSHA256: p.Base.DatabaseSHA256, Origin: p.Base.ID, Generation: 1,
		Entries: c.Entries, CheckpointHashesEqual: r.CheckpointHashes.Equal, CheckpointHashesPassed: r.CheckpointHashes.Passed,
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
