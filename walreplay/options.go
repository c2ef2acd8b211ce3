package walreplay

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/requorum/requorum/walreplay/engine"
)

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

// DefaultMinLeaseTTL is what etcd raises shorter leases to at its default
// election timeout of 1 s: 1.5 times that, rounded up to seconds.
const DefaultMinLeaseTTL = 2 * time.Second

// Options are how a replay is done.
type Options struct {
	// ScratchDir is where a scratch folder is made. It is made itself where it is
	// not there, and then removed with it.
	ScratchDir string
	// MinLeaseTTL and PersistCheckpoints say how the source's members were
	// configured: see engine.Options. DefaultMinLeaseTTL where zero.
	MinLeaseTTL        time.Duration
	PersistCheckpoints bool
	// SourceVersion is the etcd that the log's entries were applied by, such as
	// "3.4.23"; where empty, that of the member which the backup was read from.
	SourceVersion string
	// Stamps says which of the archive's live hashes are compared with what was
	// rebuilt. One that differs is a *StampError in a *snapshot.DamagedError.
	Stamps StampCheck
	// CheckBase looks at a base's database, of size bytes without a sum, before
	// etcd's own parts open it: what makes no sense they end the process over, from
	// goroutines that nobody can rescue. May be nil, for one that is known to be
	// sound; an image without a manifest has its pages checked in any case.
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

func (o Options) minLeaseTTL() time.Duration {
	if o.MinLeaseTTL == 0 {
		return DefaultMinLeaseTTL
	}
	return o.MinLeaseTTL
}

// sourceVersion is whose rules the replay from b follows; empty is the newest.
func (o Options) sourceVersion(b *Base) string {
	if o.SourceVersion == "" && b.Manifest != nil {
		return b.Manifest.Source.Version
	}
	return o.SourceVersion
}

func (o Options) engine(b *Base) engine.Options {
	return engine.Options{MinLeaseTTL: o.minLeaseTTL(), PersistCheckpoints: o.PersistCheckpoints, SourceVersion: o.sourceVersion(b), Logger: o.Logger}
}

// PhaseTime is how long a phase took.
type PhaseTime struct {
	Phase Phase
	Took  time.Duration
}
