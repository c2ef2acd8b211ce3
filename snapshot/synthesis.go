package snapshot

import "time"

// Synthesis says how a full snapshot was made that no member was read for: an
// earlier one, and the log after it. The snapshot's facts, sums and HashKV are
// those of the database that came out.
type Synthesis struct {
	// Base is the backup that was begun from, BaseIndex its raft index, and
	// BaseDatabaseSHA256 its manifest's database_sha256.
	Base               string `json:"base"`
	BaseIndex          uint64 `json:"base_index"`
	BaseDatabaseSHA256 string `json:"base_database_sha256"`
	// Origin is the backup, read from a member, that the row of bases goes back
	// to, and Generation how many were made since: 1 where Base is that one.
	Origin     string `json:"origin"`
	Generation int    `json:"generation"`

	// Entries is how many entries of the log were replayed. ReplayedChain is the
	// chain over these alone, and ArchiveChain the archive's own value at the
	// snapshot's raft index, empty where it has none.
	Entries       uint64 `json:"entries"`
	ReplayedChain string `json:"replayed_chain"`
	ArchiveChain  string `json:"archive_chain,omitempty"`

	// Observed is when a live member was first seen at the snapshot's raft index;
	// zero where none was. When the snapshot was made tells nothing of that.
	Observed time.Time `json:"observed,omitzero"`

	// StampsEqual is how many hashes that live members served were compared and
	// are equal, StampsPassed how many could not be compared.
	StampsEqual  int `json:"stamps_equal"`
	StampsPassed int `json:"stamps_passed"`

	// How leases were replayed.
	MinLeaseTTL        time.Duration `json:"min_lease_ttl_nanoseconds"`
	PersistCheckpoints bool          `json:"persist_checkpoints,omitempty"`
}

// Synthetic tells whether the snapshot was made without reading a member.
func (m *Manifest) Synthetic() bool { return m.Synthesis != nil }

// MadeFrom says for people where the snapshot came from: a member's name, or ID,
// or "synthetic from" the backup that it was made from.
func (m *Manifest) MadeFrom() string {
	switch {
	case m.Synthetic():
		return "synthetic from " + m.Synthesis.Base
	case m.Source.Name != "":
		return m.Source.Name
	}
	return m.Source.MemberID.String()
}
