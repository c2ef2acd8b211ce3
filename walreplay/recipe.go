package walreplay

import (
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

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

	// Parts are what a joined history replayed, up to Index.
	Parts []RecipePart `json:"parts,omitempty"`

	BaseIndex uint64 `json:"base_index"`
	Index     uint64 `json:"index"` // of the last entry that was replayed
	Term      uint64 `json:"term"`  // and its term
	Entries   uint64 `json:"entries"`
	Revision  int64  `json:"revision"`
	Time      string `json:"time,omitempty"` // when that was, in words
	// Replayed is the chain over the replayed entries, begun anew at the base;
	// Chain is the archive's own value at Index, where it has one.
	Replayed raftlog.Sum  `json:"replayed"`
	Chain    *raftlog.Sum `json:"chain,omitempty"`
	// HashKV is that of the rebuilt database.
	HashKV snapshot.HashKV `json:"hashkv"`

	// How leases were replayed: see engine.Options.
	MinLeaseTTL        time.Duration `json:"min_lease_ttl_nanoseconds"`
	PersistCheckpoints bool          `json:"persist_checkpoints,omitempty"`
	// SourceVersion is the etcd whose rules were followed; empty for the newest.
	SourceVersion string `json:"source_version,omitempty"`

	// Unproven says in words what may be missing or too much; empty where
	// nothing is, and for a joined history: who put it together knows.
	Unproven string `json:"unproven,omitempty"`
}

// RecipePart is a part of somebody's log.
type RecipePart struct {
	Owner string `json:"owner"`
	First uint64 `json:"first_index"`
	Last  uint64 `json:"last_index"`
}

func (p RecipePart) String() string {
	return fmt.Sprintf("entries %d to %d of %s", p.First, p.Last, p.Owner)
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
		{"the chain over the replayed entries", r.Replayed, before.Replayed},
		{"the revision", r.Revision, before.Revision},
		{"HashKV", r.HashKV.Hash, before.HashKV.Hash},
		{"the compacted revision", r.HashKV.CompactedRevision, before.HashKV.CompactedRevision},
	} {
		if c.got != c.want {
			return &OtherStateError{c.what, c.got, c.want}
		}
	}
	return nil
}
