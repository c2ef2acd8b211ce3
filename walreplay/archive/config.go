package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Defaults of Config, and its bounds.
const (
	// DefaultInterval keeps the requests to an object store at about 1.60 USD a
	// month. The members' own logs cover what is younger.
	DefaultInterval = 10 * time.Second
	// DefaultSize is what a put transfers in a moment also over a slow line.
	DefaultSize = 1 << 20
	// MaxSize bounds Size, and a segment when there is more to archive than that: larger
	// ones catch up faster, and have to fit into memory twice.
	MaxSize = 8 << 20
	_       = uint(segment.MaxRaw - MaxSize) // does not compile where a segment of MaxSize could not be stored
	// DefaultAlive is how often a quiet cluster is distinguished from a dead archiver.
	DefaultAlive = time.Minute
	// DefaultSpoolLimit is a day of a Kubernetes cluster, or an hour of a very
	// busy one.
	DefaultSpoolLimit = 2 << 30
)

const (
	// putLimit is how long after its cut a segment may still be put: names are
	// freed by pruning a day later at the earliest, so no late writer can land
	// in one that was freed.
	putLimit = time.Minute
	// lookLimit bounds a small read.
	lookLimit = 15 * time.Second
	// silentAfter is how long the repository may take at a start before that is
	// shown.
	silentAfter = 5 * time.Second
	// flushLimit bounds what is done after the context has ended.
	flushLimit = 5 * time.Second
	// gapTakeovers is how many takeover times a gap is left to the others.
	gapTakeovers = 3
	// queueLimit bounds the entries in memory: several of the largest segments.
	queueLimit = 32 << 20
	// pendingLimit bounds what of a member's log is in memory and not known to be
	// committed, in bytes.
	pendingLimit = 16 << 20
)

// Config says what to archive, and where.
type Config struct {
	// Client leads to the cluster, and to this member among others. The caller
	// closes it after Run or Once.
	Client *client.Client
	// DataDir is the member's data directory; WALDir its --wal-dir, where that
	// is another one than <DataDir>/member/wal.
	DataDir, WALDir string

	// Sink is the repository, which is made where there is none yet. The caller
	// closes it.
	Sink  sinks.Sink
	Codec codec.Options
	// SingleWriter says that no other archiver uses the repository. Without it a
	// Sink that does not decide between two writers of one name (its Abilities say
	// so) is refused with a *SharedError.
	SingleWriter bool
	// Identities are not needed. With them an encrypted segment can be compared
	// with a member's log that holds only a part of it.
	Identities []age.Identity
	Tool       string // such as "requorum 1.2.3"

	// SpoolDir is a directory of this archiver alone. Segments wait there while the
	// repository is unreachable; they are not encrypted.
	SpoolDir string
	// SpoolLimit bounds, in bytes, the spool together with the purged WAL files
	// that are kept from vanishing.
	SpoolLimit int64

	// A segment is cut when its first entry is Interval old, or it has Size bytes.
	Interval time.Duration
	Size     int64
	// Poll is how often the log is read; a tenth of Interval, within 50 and 250
	// ms, where zero.
	Poll time.Duration
	// Takeover is how late the archive has to be before a follower writes; three
	// intervals, and 5 s at least, where zero. A share that depends on the member
	// is added.
	Takeover time.Duration
	// Alive is how often an idle archiver writes a mark.
	Alive time.Duration

	// OnGap is called, not more than once at a time, when a full snapshot is
	// due: without it, what is archived from now on cannot be restored. It is
	// called again, every minute, until it returns nil; also by the next process
	// that uses SpoolDir. May be nil.
	OnGap func(context.Context, Gap) error
	// Events hears of alarms that come and go; may be nil. It must not block.
	Events func(Event)
	// Origin describes the timeline of a cluster that was restored, where that can be
	// known: its Parent is set. May be nil.
	Origin func(clusterID uint64) (repository.Timeline, bool)
	// About describes the agent in the marks that its archiver writes; may be nil.
	About  func() *repository.Agent
	Logger *slog.Logger // may be nil
	Now    func() time.Time

	open    func(from uint64) (Log, error)       // for tests
	cluster Cluster                              // for tests
	place   func(dir string) (sinks.Sink, error) // of the spool; for tests
}

// Gap says that the archived log has a gap before First, or that it could not
// be proved that what is archived from First on continues what is before.
type Gap struct {
	Timeline string `json:"timeline"`
	First    uint64 `json:"first"`   // index of the first entry behind it
	Missing  uint64 `json:"missing"` // entries; 0 where only the proof is missing
	Reason   string `json:"reason"`
	// Found is when it was recorded, by this host's clock. A full snapshot from
	// before then may be of another history, whatever its index. It is zero where
	// both sides of a gap are known to be of one history.
	Found time.Time `json:"found,omitzero"`
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.open == nil && c.DataDir == "" && c.WALDir == "":
		return c, errors.New("archive: no data directory is given: it is where the member's log is read")
	case c.cluster == nil && c.Client == nil:
		return c, errors.New("archive: no client is given: only the member knows what is committed")
	case c.Sink == nil:
		return c, errors.New("archive: no repository is given")
	case c.SpoolDir == "":
		return c, errors.New("archive: no spool folder is given: segments wait there while the repository is away")
	case c.Interval < 0 || c.Size < 0 || c.Poll < 0 || c.Takeover < 0 || c.Alive < 0 || c.SpoolLimit < 0:
		return c, errors.New("archive: interval, size, poll, takeover, alive and spool limit cannot be negative")
	}
	c.WALDir = cmp.Or(c.WALDir, filepath.Join(c.DataDir, "member", "wal"))
	c.SpoolLimit = cmp.Or(c.SpoolLimit, DefaultSpoolLimit)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Size = cmp.Or(c.Size, DefaultSize)
	if c.Size > MaxSize {
		return c, fmt.Errorf("archive: a segment of %d bytes is too large: %d at most", c.Size, MaxSize)
	}
	c.Poll = cmp.Or(c.Poll, min(max(c.Interval/10, 50*time.Millisecond), 250*time.Millisecond))
	c.Takeover = cmp.Or(c.Takeover, max(3*c.Interval, 5*time.Second))
	c.Alive = cmp.Or(c.Alive, DefaultAlive)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.cluster == nil {
		c.cluster = &members{client: c.Client}
	}
	if c.place == nil {
		c.place = func(dir string) (sinks.Sink, error) { return disk.New(dir) }
	}
	if c.open == nil {
		c.open = func(from uint64) (Log, error) {
			return walfile.OpenTail(c.WALDir, walfile.TailOptions{From: from, PinLimit: c.SpoolLimit, PendingLimit: pendingLimit})
		}
	}
	return c, nil
}

// spoolAfter is how old an entry may get in memory alone while the repository
// does not take it.
func (c Config) spoolAfter() time.Duration { return max(2*c.Interval, 2*time.Second) }

// takeoverOf is this member's: no two begin at the same moment.
func (c Config) takeoverOf(member uint64) time.Duration {
	return c.Takeover + time.Duration(member%8)*c.Takeover/16
}

// Log is the log of a running member: what is needed here of a *walfile.Tail.
type Log interface {
	// Identity is whose log it is.
	Identity() Identity
	// Poll reads what is new. Behind a *walfile.GapError or *walfile.PurgedError
	// the next Poll goes on.
	Poll(ctx context.Context) error
	// First and Last are what was read and not released; 0 where nothing was.
	First() uint64
	Last() uint64
	// Term is of an entry that was not released, or of the last one that was.
	Term(index uint64) (uint64, bool)
	// Recorded is the highest commit index in the log itself.
	Recorded() uint64
	// Full: there is more to read after a Release.
	Full() bool
	// Release hands out entries and forgets them.
	Release(through uint64) []raftlog.Entry
	// Overwritten is the first entry that was overwritten although it had been
	// released; 0: none was.
	Overwritten() uint64
	// Pinned are the bytes of purged files that this Log keeps from vanishing.
	Pinned() int64
	// DropPins releases them; lost says that entries in them were not read.
	DropPins() (lost bool)
	Close() error
}
