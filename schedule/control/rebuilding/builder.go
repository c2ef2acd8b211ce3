package rebuilding

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/verify/replaying"
)

// Builder rebuilds the member that a configuration names.
type Builder struct {
	config *config.Config
	logger *slog.Logger

	// What tests shorten.
	pieceSize int64         // copied in one request
	askFor    time.Duration // the repositories, where nothing is read of them yet
	stall     time.Duration // how long a copy may stand still
	wait      time.Duration // between attempts at a piece
}

// New makes a builder; logger may be nil.
func New(cfg *config.Config, logger *slog.Logger) *Builder {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Builder{config: cfg, logger: logger, pieceSize: 64 << 20, askFor: 10 * time.Second, stall: 30 * time.Second, wait: time.Second}
}

// Hooks are those of a control process that has this builder.
func (b *Builder) Hooks() control.Hooks {
	return control.Hooks{
		Survey:       survey,
		Digest:       digest,
		Repositories: b.Repositories,
		MayStart:     b.mayStart,
		Rebuild: func(ctx context.Context, r control.Rebuild) (any, error) {
			built, err := b.Rebuild(ctx, r)
			if err != nil {
				return nil, err // and no pointer in an interface
			}
			return built, nil
		},
	}
}

// survey is what a recovery would find in one member's directories.
func survey(ctx context.Context, dataDir, walDir string) (any, error) {
	return recovery.Survey(ctx, recovery.SurveyRequest{
		Survivors: []recovery.Survivor{{Name: "member", DataDir: dataDir, WALDir: walDir}}, CheckBase: replaying.CheckBase,
	})
}

func digest(ctx context.Context, w io.Writer, s recovery.Survivor) error {
	return recovery.WriteDigest(ctx, w, s, recovery.DigestOptions{CheckBase: replaying.CheckBase})
}

// owner is who the new files belong to; nil: as found.
func (b *Builder) owner() (*restore.Owner, error) {
	name := b.config.Member.Owner
	if name == "" {
		name = b.config.Member.Store.User
	}
	if name == "" {
		return nil, nil
	}
	owner, err := restore.ParseOwner(name)
	return &owner, err
}
