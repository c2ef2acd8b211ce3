package archive

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Log is the log of a running member: what walfile.Tail does, as far as it is
// needed here.
type Log interface {
	// Identity is whose log it is.
	Identity() Identity
	// Poll reads what is new. An *overtaken is a hole: entries that the member
	// never had, or that were purged before they were read; the next Poll goes
	// on behind it.
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
	// Overwritten is the lowest index that was overwritten although it had been
	// released; 0 where none was.
	Overwritten() uint64
	// Pinned are the bytes of purged files that this Log keeps from vanishing.
	Pinned() int64
	// DropPins lets go of them; lost tells that entries in them were not read.
	DropPins() (lost bool)
	Close() error
}

// Identity is of a member, and of its cluster.
type Identity struct{ ClusterID, MemberID uint64 }

func (i Identity) String() string {
	return fmt.Sprintf("member %x of cluster %x", i.MemberID, i.ClusterID)
}

// overtaken says that a log goes on at index Next, and not at After+1; at one
// that is not known yet where Next is 0.
type overtaken struct {
	After, Next uint64
	Err         error
}

func (e *overtaken) Error() string {
	return fmt.Sprintf("no entries behind index %d: %v", e.After, e.Err)
}

func (e *overtaken) Unwrap() error { return e.Err }

// Cluster answers what the files do not tell. None of it proposes anything: a
// proposal would itself be an entry to archive, for ever.
type Cluster interface {
	// Status asks the member; an *IdentityError where somebody else answers.
	Status(ctx context.Context, want Identity) (store.MemberStatus, error)
	// Reached is what the cluster had applied at least when it was called, as a
	// quorum confirmed: the furthest index and the latest term.
	Reached(ctx context.Context, want Identity) (Reach, error)
	// Hash is a live HashKV of the member.
	Hash(ctx context.Context, member store.MemberStatus) (store.HashKV, error)
}

// Reach is a point that the cluster has reached.
type Reach struct {
	Index, Term uint64
	Members     []string // names
}

// IdentityError says that a log and the answers are of different members.
type IdentityError struct {
	Log, Answer Identity
	Endpoint    string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("the log is of %s, and %s answers as %s: give the data directory and the client URL of the same member, and no load balancer's", e.Log, e.Endpoint, e.Answer)
}
