package walreplay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Rebuild makes the database at a point that Resolve found, in o.ScratchDir. The
// caller closes the result.
//
// A revision that the log does not reach is a *NotCoveredError. Damage of the
// image is a *snapshot.DamagedError, of the log a *LogError that wraps one.
func (h *History) Rebuild(ctx context.Context, p *Point, o Options) (_ *Rebuilt, err error) {
	if p.AsIs {
		return &Rebuilt{Base: p.Base, image: p.Base.Image, name: p.Base.Image.Name(), facts: p.Base.Facts}, nil
	}
	r, err := h.replay(ctx, p.Base, PhaseReplay, o, engine.RunOptions{Last: p.Last, MaxRevision: p.MaxRevision})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.scratch.Remove())
		}
	}()
	if p.MaxRevision > 0 && r.stopped.Revision < p.MaxRevision {
		return nil, h.notReached(p, Near{Index: r.stopped.Index, Revision: r.stopped.Revision})
	}
	out := &Rebuilt{Base: p.Base, scratch: r.scratch, Phases: r.times}
	if err := out.prove(ctx, h, p, r, o); err != nil {
		return nil, err
	}
	return out, nil
}

// prove reads the database that was rebuilt, and writes its recipe.
func (out *Rebuilt) prove(ctx context.Context, h *History, p *Point, r *replayed, o Options) error {
	o.progress(PhaseProve, 0, 0)
	file, err := snapshot.OpenUnsynced(r.scratch.database())
	if err != nil {
		return err
	}
	if out.facts, err = file.Facts(ctx); err != nil {
		return fmt.Errorf("look into what was rebuilt: %w", err)
	}
	if out.facts.RaftIndex != r.stopped.Index || out.facts.Revision != r.stopped.Revision {
		return fmt.Errorf("the rebuilt database says raft index %d, revision %d, the replay said %d, %d: this is a mistake in requorum, please report it",
			out.facts.RaftIndex, out.facts.Revision, r.stopped.Index, r.stopped.Revision)
	}
	if r.notBulk != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("the log was replayed by etcd's applier, not in bulk: %v", r.notBulk))
	}
	if r.noCompactKey {
		out.Notes = append(out.Notes, noCompactKeyNote)
	}
	hash := r.hash
	if hash.Revision == 0 {
		if hash, err = file.HashKV(ctx, 0); err != nil {
			return err
		}
	}
	out.image = file
	out.name = fmt.Sprintf("%s and %d entries of the log to raft index %d", p.Base.Name, r.entries, r.stopped.Index)
	c := &Recipe{
		Base: p.Base.ID, Timeline: h.Timeline, BaseIndex: p.Base.Index(),
		Index: r.stopped.Index, Term: r.stopped.Term, Entries: r.entries, Revision: r.stopped.Revision,
		HashKV: hash, SourceSettings: o.settings(p.Base),
	}
	if c.Time, err = h.about(ctx, c.Index); err != nil {
		return fmt.Errorf("find out when entry %d was written: %w", c.Index, err)
	}
	if p.Base.Manifest == nil {
		c.Image, c.Base = p.Base.ID, ""
	}
	if m, ok := h.log.(*member); ok {
		m.complete(c, out.facts)
	}
	switch sum, err := h.log.chain(ctx, c.Index); {
	case err == nil:
		c.Chain = &sum
	case !errors.Is(err, errNoChain):
		return err
	}
	out.Recipe = c
	return nil
}

// Repeat does what a recipe says, and checks that the same came out. For a
// recipe of a data directory h is that directory's history, wherever it is now.
func (h *History) Repeat(ctx context.Context, recipe *Recipe, o Options) (*Rebuilt, error) {
	id := recipe.Base
	if id == "" {
		id = recipe.Image
	}
	base, err := h.base(id)
	if err != nil {
		return nil, err
	}
	p := &Point{Target: Target{Kind: AtIndex, Index: recipe.Index}, Base: base, Last: recipe.Index}
	if err := h.resolveIndex(p); err != nil {
		return nil, err
	}
	if err := h.complete(ctx, p); err != nil {
		return nil, err
	}
	o.SourceSettings = recipe.SourceSettings
	r, err := h.Rebuild(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if r.Recipe == nil {
		err = otherState("the number of replayed entries", 0, recipe.Entries)
	} else {
		err = r.Recipe.Check(recipe)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Rebuilt is the database at a point. It is a snapshot.Image; where nothing had
// to be replayed it is the base's own. Close removes it.
type Rebuilt struct {
	// Recipe is nil where nothing was replayed.
	Recipe *Recipe
	// Base is what was begun from.
	Base *Base
	// Phases are how long it took; none where nothing was replayed.
	Phases []PhaseTime
	// Notes are sentences for the user about what came out.
	Notes []string

	image   snapshot.Image
	name    string
	facts   snapshot.Facts
	scratch *ScratchFolder
}

// Name gives the base and the point.
func (r *Rebuilt) Name() string { return r.name }

// Size is the database's, in bytes.
func (r *Rebuilt) Size() int64 { return r.image.Size() }

// Open reads the database.
func (r *Rebuilt) Open(ctx context.Context) (io.ReadCloser, error) { return r.image.Open(ctx) }

// Facts are what the database says.
func (r *Rebuilt) Facts(context.Context) (snapshot.Facts, error) { return r.facts, nil }

// DatabaseSHA256 is the base's own where nothing was replayed, and empty
// otherwise: two replays may write different pages.
func (r *Rebuilt) DatabaseSHA256() string {
	if s, ok := r.image.(interface{ DatabaseSHA256() string }); ok {
		return s.DatabaseSHA256()
	}
	return ""
}

// HasHash reports whether every byte that it was made from had a checksum.
func (r *Rebuilt) HasHash() bool {
	if r.Recipe != nil && r.Recipe.DataDir == "" && r.Recipe.Image == "" {
		return true
	}
	if s, ok := r.image.(interface{ HasHash() bool }); ok {
		return s.HasHash()
	}
	return r.DatabaseSHA256() != ""
}

// ReplayRecipe is Recipe, for those that only know an image.
func (r *Rebuilt) ReplayRecipe() *Recipe { return r.Recipe }

// Path is the rebuilt database's file, until Close; empty where nothing was
// replayed. It is not synced: see snapshot.OpenUnsynced.
func (r *Rebuilt) Path() string {
	if r.scratch == nil {
		return ""
	}
	return r.scratch.database()
}

// Take moves the rebuilt database to a path, where it is the caller's, who syncs it: the
// image cannot be opened any more. It reports false, and nothing is moved, where nothing
// was replayed, and where the path is in another file system.
func (r *Rebuilt) Take(path string) (bool, error) {
	if r.scratch == nil {
		return false, nil
	}
	err := safedir.Rename(r.scratch.database(), path)
	if errors.Is(err, unix.EXDEV) {
		return false, nil
	}
	return err == nil, err
}

// Close removes the scratch folder. The image cannot be read any more then.
func (r *Rebuilt) Close() error {
	if r.scratch == nil {
		return nil
	}
	s := r.scratch
	r.scratch = nil
	return s.Remove()
}

// Recipe is how a database was rebuilt, and what came out: enough to do it
// again elsewhere and to know that it is the same. Its JSON form is stable.
type Recipe struct {
	// Base is the backup's ID; empty where DataDir is the source.
	Base     string                `json:"base,omitempty"`
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	// DataDir and WALDir are a stopped member's directories, and Image the file
	// in them that was begun from: empty for a log from its first entry on. Of a
	// joined history there is no directory.
	DataDir string `json:"data_dir,omitempty"`
	WALDir  string `json:"wal_dir,omitempty"`
	Image   string `json:"image,omitempty"`

	BaseIndex uint64 `json:"base_index"`
	Index     uint64 `json:"index"` // of the last entry that was replayed
	Term      uint64 `json:"term"`  // and its term
	Entries   uint64 `json:"entries"`
	Revision  int64  `json:"revision"`
	Time      string `json:"time,omitempty"` // when that was, in words
	// Chain is the archive's value at Index, where it has one.
	Chain *raftlog.Sum `json:"chain,omitempty"`
	// HashKV is that of the rebuilt database.
	HashKV snapshot.HashKV `json:"hashkv"`

	// SourceSettings are those that were followed.
	engine.SourceSettings

	// Unproven says in words what may be missing or too much; empty where
	// nothing is, and for a joined history: who put it together knows.
	Unproven string `json:"unproven,omitempty"`
}

// Check holds what this recipe gave against what it gave before. File sizes and
// pages may differ between two replays; what etcd reads from them may not.
func (r *Recipe) Check(before *Recipe) error {
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"the raft index", r.Index, before.Index},
		{"the raft term", r.Term, before.Term},
		{"the number of replayed entries", r.Entries, before.Entries},
		{"the revision", r.Revision, before.Revision},
		{"HashKV", r.HashKV.Hash, before.HashKV.Hash},
		{"the compacted revision", r.HashKV.CompactedRevision, before.HashKV.CompactedRevision},
	} {
		if c.got != c.want {
			return otherState(c.what, c.got, c.want)
		}
	}
	return nil
}

// otherState says that a recipe gave another state than it did before.
func otherState(what string, got, want any) error {
	return fmt.Errorf("the replay came to another state than the plan's: %s is %v, not %v: the log or the snapshot that it reads here is not the one that the plan was made from", what, got, want)
}

// Phase is a part of a rebuild.
type Phase string

// The phases. PhaseBase counts bytes of the image, PhaseReplay entries;
// PhaseSearch is a replay that looks for a key, in entries, and PhaseProve reads
// what was rebuilt, uncounted.
const (
	PhaseBase   Phase = "base"
	PhaseSearch Phase = "search"
	PhaseReplay Phase = "replay"
	PhaseProve  Phase = "prove"
)

// Options are how a replay is done.
type Options struct {
	// ScratchDir is where a scratch folder is made. It is made itself where it is
	// not there, and then removed with it.
	ScratchDir string
	// SourceSettings are the source's members'; where the version is empty, it is that of the
	// member which the backup was read from.
	engine.SourceSettings
	// Engine applies the log; DefaultEngine where empty. A search for a key is always
	// etcd's applier's.
	Engine ReplayEngine
	// CheckBase looks at a base's database, of size bytes without a sum, before
	// etcd's own parts open it: what makes no sense they end the process over, from
	// goroutines that nobody can rescue. May be nil, for one that is known to be
	// sound; an image without a manifest has its pages checked then.
	CheckBase func(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Progress may be nil. It is called from one goroutine.
	Progress func(p Phase, done, total int64)
	Logger   *slog.Logger // may be nil
}

func (o Options) progress(p Phase, done, total int64) {
	if o.Progress != nil {
		o.Progress(p, done, total)
	}
}

// settings are those that the replay from b follows.
func (o Options) settings(b *Base) engine.SourceSettings {
	s := o.SourceSettings
	s.MinLeaseTTL = cmp.Or(s.MinLeaseTTL, engine.DefaultMinLeaseTTL)
	if s.SourceVersion == "" && b.Manifest != nil {
		s.SourceVersion = b.Manifest.Source.Version
	}
	return s
}

func (o Options) engine(b *Base) engine.Options {
	return engine.Options{SourceSettings: o.settings(b), Logger: o.Logger}
}

// PhaseTime is how long a phase took.
type PhaseTime struct {
	Phase Phase         `json:"phase"`
	Took  time.Duration `json:"nanoseconds"`
}
