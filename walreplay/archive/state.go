package archive

import (
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Role is what an archiver does.
type Role string

// The roles.
const (
	Starting  Role = "starting"  // looks for the timeline, and where its archive ends
	Comparing Role = "comparing" // its log with the end of the archive
	Writer    Role = "writer"
	Follower  Role = "follower" // another one writes
	Spooling  Role = "spooling" // the repository is away
	Stopped   Role = "stopped"
)

// State is what an archiver knows of itself.
type State struct {
	Role     Role                  `json:"role"`
	Member   string                `json:"member"` // IDs of member and cluster
	Timeline repository.TimelineID `json:"timeline,omitzero"`

	// Archived is the last entry that is durable in the repository, as far as
	// this one knows; ArchivedRevision the highest revision that it is known to
	// reach; ArchivedTime when this one learned of it.
	Archived         uint64    `json:"archived"`
	ArchivedTerm     uint64    `json:"archived_term"`
	ArchivedRevision int64     `json:"archived_revision"`
	ArchivedTime     time.Time `json:"archived_time"`

	Applied uint64 `json:"applied"` // by the member, as it last answered
	// Confirmed is when the member was last asked, by this host's clock, of whose
	// answer all is applied that was committed by then: what was acknowledged until
	// then is among those entries, as far as the member had heard of it. One that
	// sees no leader, or is far behind, confirms nothing.
	Confirmed time.Time `json:"confirmed,omitzero"`
	Released  uint64    `json:"released"` // the last entry known to be committed and read
	Read      uint64    `json:"read"`     // the last entry in the log

	// Recoverable is the last entry that a restore gets to: Archived, unless
	// entries before that are missing and no full snapshot is behind them; 0
	// while there is no full snapshot at all.
	Recoverable uint64 `json:"recoverable"`

	// Behind is how old the oldest entry is that is committed, read, and not
	// durable in the repository, or how long it is known that what is durable
	// cannot be restored, whichever is longer; BehindEntries how many the member
	// has applied beyond Recoverable.
	Behind        time.Duration `json:"behind"`
	BehindEntries uint64        `json:"behind_entries"`

	Queued     int64 `json:"queued"`      // bytes in memory
	Spooled    int64 `json:"spooled"`     // bytes in the spool
	Pinned     int64 `json:"pinned"`      // bytes of purged WAL files kept
	SpoolLimit int64 `json:"spool_limit"` // bound, in bytes, for both of them together

	Segments int64    `json:"segments"` // that this one stored
	Bytes    int64    `json:"bytes"`    // in them
	Requests Requests `json:"requests"`

	// Observations that did not agree with the log, and were dropped.
	Dropped int64 `json:"dropped"`

	// Holes are runs of entries that the archive lacks, and that archivers may
	// still fill; Checked is when this one last looked through the archive.
	Holes   []Hole    `json:"holes"`
	Checked time.Time `json:"checked,omitzero"`

	Gaps        []Gap         `json:"gaps"` // found by this process
	SnapshotDue string        `json:"snapshot_due,omitempty"`
	Alarms      []RaisedAlarm `json:"alarms"`
	LastError   string        `json:"last_error,omitempty"`
}

// String is one line for people.
func (s State) String() string {
	line := fmt.Sprintf("%s of %s: archived to index %d, %d entries and %s behind", s.Role, s.Timeline, s.Archived, s.BehindEntries, s.Behind.Round(time.Millisecond))
	switch {
	case s.Recoverable == 0 && s.Archived > 0:
		line += "; nothing can be restored: there is no full snapshot"
	case s.Recoverable < s.Archived:
		line += fmt.Sprintf("; recoverable to index %d only", s.Recoverable)
	}
	var names []string
	for _, a := range s.Alarms {
		names = append(names, string(a.Alarm))
	}
	if len(names) > 0 {
		line += "; alarms: " + strings.Join(names, ", ")
	}
	return line
}
