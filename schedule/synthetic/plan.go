package synthetic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
)

const (
	// memoryPerEntry is what an entry that makes a key adds to etcd's index.
	memoryPerEntry = 400
	// memoryReserved is what a process on few processors reserves beyond what it
	// uses: a hard limit counts that as well.
	memoryReserved = 64 << 20
	// scratchSlack is what a database file is larger than what is in it while it is
	// built: bbolt grows it in steps of 16 MiB.
	scratchSlack = 32 << 20
)

// errGap is why the end of the log cannot be reached.
var errGap = errors.New("the log goes on behind a gap")

// Plan is what Make would do.
type Plan struct {
	Base    *snapshot.Manifest // to begin from
	Index   uint64             // the raft index of the new snapshot
	Entries uint64             // to replay
	Log     int64              // about how many bytes they have
	// Memory is about what a process needs for it that uses two processors, in bytes,
	// beside the mapped file, and Scratch what it takes in the scratch folder.
	Memory, Scratch int64
	// Skipped are newer backups that are not begun from, with the reason.
	Skipped []string

	history *walreplay.History
	point   *walreplay.Point
}

// PlanOf says what Make would do: it lists the backups and the log, reads the
// verdicts, and no entry. Its errors are Make's.
func PlanOf(ctx context.Context, o Options) (*Plan, error) {
	o = o.withDefaults()
	c, err := snapshot.ReadBackups(ctx, o.Repo, o.Timeline)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if err := p.choose(ctx, c, o); err != nil {
		return nil, err
	}
	if p.history, err = walreplay.OpenArchive(ctx, o.Repo, c, o.Timeline, o.Identities...); err != nil {
		return nil, err
	}
	if p.point, err = p.history.Resolve(ctx, walreplay.Target{Kind: walreplay.Latest}, p.Base.ID, o.walreplay()); err != nil {
		return nil, p.due(err)
	}
	if !p.history.Unbroken(p.point.Base) {
		return nil, p.due(fmt.Errorf("%s, at raft index %d, can be replayed up to raft index %d only, and %w", p.point.Base.Name, p.Base.Facts.RaftIndex, p.point.Last, errGap))
	}
	p.Index, p.Entries, p.Log = p.point.Last, p.point.Entries(), p.point.Bytes
	if p.Entries == 0 {
		return nil, fmt.Errorf("%w of timeline %s: backup %s is at its end, raft index %d", ErrNothingNew, o.Timeline, p.Base.ID, p.Base.Facts.RaftIndex)
	}
	p.Memory = replaying.MemoryOf(p.Base) + int64(p.Entries)*memoryPerEntry + memoryReserved
	p.Scratch = p.Base.Object.RawSize + 2*p.Log + scratchSlack
	return p, p.mayWrite(o)
}

// due says that nothing can be made of this log, unless the error is of something
// else.
func (p *Plan) due(err error) error {
	var damaged *walreplay.LogError
	if !errors.As(err, &damaged) && !errors.Is(err, snapshot.ErrNoBackup) && !errors.Is(err, errGap) {
		return err
	}
	return fmt.Errorf("%w from backup %s: %w: take a full snapshot of a member", ErrLogEnds, p.Base.ID, err)
}

// choose finds the newest backup that is not known to be bad.
func (p *Plan) choose(ctx context.Context, c *snapshot.Catalog, o Options) error {
	chain, err := verdict.ReadAll(ctx, o.Repo, o.TrustedKeys...)
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
func (p *Plan) mayWrite(o Options) error {
	if len(o.Codec.Recipients) > 0 || !p.Base.Object.Encrypted() && !p.history.Encrypted(p.Base.Facts.RaftIndex+1, p.Index) {
		return nil
	}
	return fmt.Errorf("make a full snapshot of backup %s and the log: %w: name recipients", p.Base.ID, ErrPlain)
}
