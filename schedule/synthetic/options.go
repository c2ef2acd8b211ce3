package synthetic

import (
	"crypto/ed25519"
	"errors"
	"log/slog"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/walreplay"
)

// Errors that a caller may want to tell apart. That another attempt was faster is
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

// Options say what to make, of what, and where to keep it.
type Options struct {
	Repo     *repository.Repository
	Timeline repository.TimelineID
	// ID and Attempt are as in a snapshot.Request.
	ID      string
	Attempt int
	// Identities open the backup and the log, where they are encrypted.
	Identities []age.Identity
	// Codec says how the new snapshot is stored: encrypted, with recipients.
	Codec codec.Options
	// ScratchDir is where the database is built: see Plan.Scratch.
	ScratchDir string
	// TrustedKeys, where there are any, are whose verdicts count.
	TrustedKeys []ed25519.PublicKey
	// MinLeaseTTL, PersistCheckpoints and SourceVersion say how the members were
	// configured: see walreplay.Options.
	MinLeaseTTL        time.Duration
	PersistCheckpoints bool
	SourceVersion      string
	// ReadBack reads the stored object back whole before the manifest is written.
	ReadBack bool

	Tool   string // for the manifest
	Labels map[string]string
	// Progress may be nil. It is called from one goroutine: the phases are those
	// of walreplay, "structure" in bytes, and those of snapshot.Store.
	Progress func(phase string, done, total int64)
	Logger   *slog.Logger // may be nil
	Now      func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) walreplay() walreplay.Options {
	return walreplay.Options{
		ScratchDir: o.ScratchDir, MinLeaseTTL: o.MinLeaseTTL, PersistCheckpoints: o.PersistCheckpoints, SourceVersion: o.SourceVersion,
		Stamps: walreplay.EveryStamp, CheckBase: replaying.CheckBase, Logger: o.Logger,
		Progress: func(p walreplay.Phase, done, total int64) { o.Progress(string(p), done, total) },
	}
}
