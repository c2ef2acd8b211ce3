package engine

import (
	"log/slog"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Engine applies committed entries of the raft log to a database, as the member
// that the log is from did. It is for one goroutine.
type Engine interface {
	// Apply applies the entry after the one applied last; any other is an
	// *OrderError, and changes nothing. What cannot be applied is an
	// *EntryError: the file then stays as the last commit left it, and the
	// engine can only be closed.
	Apply(e raftlog.Entry) error

	// Applied is the index and the term of the entry that was applied last. The
	// term is 0 where it is not known: in a database of etcd 3.4.
	Applied() (index, term uint64)

	// Revision is the newest one, CompactedRevision that of the last compaction
	// (0: there was none).
	Revision() int64
	CompactedRevision() int64

	// Commit puts what was applied so far into the file. It is not synced: Close
	// does that. The engine commits by itself too, to bound its memory, always
	// between two entries.
	Commit() error

	// Rollback takes back what was applied since the last commit, whether asked
	// for or not: right after Commit and one Apply, exactly that entry. Applied
	// and the revisions then say what the file holds. The engine can only be
	// closed afterwards. With BackendEtcd it is an error.
	Rollback() error

	// Close keeps what was applied (after Rollback or a failed Apply: what the
	// last commit left), syncs the file and closes it.
	Close() error
}

// Options say how to open a database.
type Options struct {
	// MinLeaseTTL is what the member raises shorter leases to: 1.5 times its
	// election timeout, rounded up to seconds. 0 is 2 s, which is right for the
	// default timeout of 1 s.
	MinLeaseTTL time.Duration

	// PersistCheckpoints is for the log of a cluster below 3.6 whose members ran
	// with --experimental-enable-lease-checkpoint-persist. From 3.6 on all
	// members do that, and so does the replay.
	PersistCheckpoints bool

	// SourceVersion is that of the member which the log is from, such as "3.5.21".
	// Versions before 3.4.44, 3.5.30 and 3.6.11 permitted or refused some requests
	// otherwise while authentication was on. Empty is the newest.
	SourceVersion string

	// Backend is BackendDirect, the default, or BackendEtcd.
	Backend string

	// Logger gets etcd's own warnings and errors; nil drops them. Requests that
	// failed on the member fail here too, and are no reason for a line.
	Logger *slog.Logger
}

// The backends: ours over one bolt transaction, and etcd's own, which is slower,
// cannot be rolled back, and serves as the oracle of ours.
const (
	BackendDirect = "direct"
	BackendEtcd   = "etcd"
)

const defaultMinLeaseTTL = 2 * time.Second
