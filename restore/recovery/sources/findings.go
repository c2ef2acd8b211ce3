package sources

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// Findings are everything that a survey found. Their JSON form is stable.
type Findings struct {
	Taken     time.Time  `json:"taken"`
	Survivors []Remains  `json:"survivors"`
	Archives  []Archive  `json:"archives"`
	Relations []Relation `json:"relations"` // of each two logs that met
	// Unread are the repositories that could not be read, with the reason.
	Unread []Unread `json:"unread_repositories,omitempty"`
}

// Mixed says which survivor is of a cluster that the repositories hold nothing of, though they
// hold another one: a directory or a repository was mixed up. Empty where none is. Who names
// the source (DecideRequest.Source) means it.
func (f *Findings) Mixed() string {
	for _, s := range f.Survivors {
		var held []string
		known := false
		for _, a := range f.Archives {
			known = known || a.Timeline.ClusterID == uint64(s.ClusterID)
			if len(a.Fulls)+len(a.Log) > 0 {
				held = append(held, fmt.Sprintf("%s in %s", a.Timeline, a.Repository))
			}
		}
		if s.ClusterID != 0 && !known && len(held) > 0 {
			return fmt.Sprintf("the data of %s in %s is of cluster %s, and the repository holds another one (%s): look whether directory and repository are the right ones; if it is meant, name what to recover from with --source", s.Name, s.DataDir, s.ClusterID, strings.Join(held, ", "))
		}
	}
	return ""
}

// Unread is a repository that could not be read.
type Unread struct {
	Repository string `json:"repository"`
	Reason     string `json:"reason"`
}

// Remains is what is left of one member.
type Remains struct {
	Name    string `json:"name"` // as it was given
	DataDir string `json:"data_dir"`
	WALDir  string `json:"wal_dir,omitempty"`

	ClusterID  snapshot.ID `json:"cluster_id,omitzero"` // of its log; zero where there is none
	MemberID   snapshot.ID `json:"member_id,omitzero"`
	MemberName string      `json:"member_name,omitempty"` // as the members know it
	Learner    bool        `json:"learner,omitempty"`

	Log       *Log       `json:"log,omitempty"` // nil where there is none, or none that can be read
	Databases []Database `json:"databases"`     // db, and those that a leader sent (*.snap.db), by index
	// Membership is who the members were at the end of the log, and Steps how it
	// came there: as it was at what is known to be committed, and after each
	// change beyond that. There are no steps where changes may have been missed.
	Membership Membership   `json:"membership"`
	Steps      []Membership `json:"membership_steps"`

	// Revision is that at the end, which only a replay shows exactly.
	Revision Bounds `json:"revision"`
	// Written is when the log's newest file was last written, by the file system.
	Written  time.Time `json:"written,omitzero"`
	Findings []Finding `json:"findings,omitempty"`
}

// Log is a member's log.
type Log struct {
	FirstIndex uint64 `json:"first_index"`
	LastIndex  uint64 `json:"last_index"`
	LastTerm   uint64 `json:"last_term"`
	// Commit is the last index that the member recorded as committed. It lags.
	Commit  uint64 `json:"commit"`
	Entries uint64 `json:"entries"`
	// Ranges are the parts without a hole.
	Ranges []Range `json:"ranges"`
	// Torn is a last record that a crash cut off; Damage ends the log before its
	// end. Both are empty where it ends cleanly.
	Torn   *Place `json:"torn,omitempty"`
	Damage *Place `json:"damage,omitempty"`
	// Forced are the entries with which --force-new-cluster removed members.
	Forced []uint64 `json:"forced,omitempty"`
	// Changed is the last entry that may have changed who votes; 0 for none.
	Changed uint64 `json:"membership_changed,omitempty"`
	// Terms are those of the entries that databases end with.
	Terms []Term `json:"terms,omitempty"`
	// Restored: the log was made by a restore, not by a cluster that began empty.
	Restored bool `json:"restored,omitempty"`
}

// Range is a part of a log without a hole.
type Range struct {
	First uint64 `json:"first_index"`
	Last  uint64 `json:"last_index"`
}

// Place is a place in a file.
type Place struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Text   string `json:"text,omitempty"`
}

// Term is that of the entry at an index.
type Term struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

// Bounds are a number that is known to lie between two; zero where it is not
// known at all.
type Bounds struct {
	AtLeast int64 `json:"at_least"`
	AtMost  int64 `json:"at_most"`
}

// Database is one database of a member.
type Database struct {
	Path              string `json:"path"`
	Size              int64  `json:"size"`
	Index             uint64 `json:"raft_index"`
	Term              uint64 `json:"raft_term"`
	Revision          int64  `json:"revision"`
	CompactedRevision int64  `json:"compacted_revision"`
	ClusterVersion    string `json:"cluster_version,omitempty"`
	StorageVersion    string `json:"storage_version,omitempty"`
	AuthEnabled       bool   `json:"auth_enabled,omitempty"`
	// Damage is empty where the database is sound.
	Damage string `json:"damage,omitempty"`

	facts snapshot.Facts // of a database that lies here
}

// Archive is one timeline of a repository.
type Archive struct {
	Name       string                 `json:"name"` // "archive:<timeline>"
	Repository string                 `json:"repository"`
	Timeline   repository.TimelineID  `json:"timeline"`
	Reason     string                 `json:"reason,omitempty"` // why it was opened
	Parent     *repository.Branch     `json:"parent,omitempty"`
	Superseded *repository.Superseded `json:"superseded,omitempty"`
	// Lost says that its cluster began again without what an older timeline holds, and
	// that nobody has answered.
	Lost bool `json:"started_over,omitempty"`

	Fulls  []Full            `json:"full_snapshots"` // by index
	Ranges []walreplay.Range `json:"ranges"`
	// Log is the archived log: all of it is committed.
	Log      []Range     `json:"log"`
	LastTerm uint64      `json:"last_term"` // at the end of the last range
	Forced   []uint64    `json:"forced,omitempty"`
	Changed  uint64      `json:"membership_changed,omitempty"`
	Terms    []Term      `json:"terms,omitempty"`
	Revision int64       `json:"revision"` // known to be reached; at least
	Highest  int64       `json:"highest_revision"`
	Held     []Held      `json:"held,omitempty"`
	Seen     Observation `json:"seen,omitzero"` // the furthest that a live member was seen
	// Unreadable says why the log was not compared with the members'.
	Unreadable string    `json:"unreadable,omitempty"`
	Findings   []Finding `json:"findings,omitempty"`

	members Membership // at the end of the log; unknown where that was not followed
}

// membership is the newest that is known of: after the last change that was followed,
// or of the newest full snapshot.
func (a *Archive) membership() Membership {
	if n := len(a.Fulls); n > 0 && !a.members.Known() {
		return membershipOf(snapshot.Facts{RaftIndex: a.Fulls[n-1].Index, Members: a.Fulls[n-1].Members})
	}
	return a.members
}

// Full is a full snapshot in a repository.
type Full struct {
	ID       string            `json:"id"`
	Index    uint64            `json:"raft_index"`
	Term     uint64            `json:"raft_term"`
	Revision int64             `json:"revision"`
	Size     int64             `json:"size"`
	Taken    time.Time         `json:"taken,omitzero"`
	Members  []snapshot.Member `json:"members"`
	// Encrypted says that nobody reads it without an identity.
	Encrypted bool `json:"encrypted,omitempty"`
}

// Held says that entries up to an index were read from a member's own log.
type Held struct {
	Member snapshot.ID `json:"member_id"`
	Index  uint64      `json:"index"`
}

// Observation is how far a live member was seen, and when.
type Observation struct {
	Index uint64    `json:"index"`
	Time  time.Time `json:"time,omitzero"`
}

// Relation is what two logs have in common. A and B are names of survivors or
// archives.
type Relation struct {
	A string `json:"a"`
	B string `json:"b"`
	// First and Last are the first and the last index at which both hold the same
	// entry, LastTerm that last one's term; 0 where there is none.
	First    uint64   `json:"first_index,omitempty"`
	Last     uint64   `json:"last_index,omitempty"`
	LastTerm uint64   `json:"last_term,omitempty"`
	Parted   *Parting `json:"parted,omitempty"` // nil where nothing differs
}

// Parting is the first index at which two logs differ.
type Parting struct {
	Index uint64 `json:"index"`
	TermA uint64 `json:"term_a"`
	TermB uint64 `json:"term_b"`
}

// committed is the last index that this member's own files show to be committed.
func (m *Remains) committed() uint64 {
	var index uint64
	for _, d := range m.Databases {
		if d.Damage == "" {
			index = max(index, d.Index)
		}
	}
	if m.Log != nil {
		index = max(index, min(m.Log.Commit, m.Log.LastIndex))
	}
	return index
}

// newest is the newest database that is sound, nil where there is none.
func (m *Remains) newest() *Database {
	var newest *Database
	for i, d := range m.Databases {
		if d.Damage == "" && (newest == nil || d.Index >= newest.Index) {
			newest = &m.Databases[i]
		}
	}
	return newest
}

// begins reports whether it is known who the members were before the log, or whether
// the log shows it from the first one on.
func (m *Remains) begins() bool { return m.newest() != nil || m.Log.FirstIndex == 1 }

// Kind is what a finding is about. The texts are stable.
type Kind string

// The kinds of findings.
const (
	KindTorn        Kind = "torn-tail"           // a last record that a crash cut off: harmless
	KindBrokenLog   Kind = "log-corrupt"         // damage in the middle of a log
	KindMissing     Kind = "missing-files"       // older files of a log are gone
	KindNoLog       Kind = "no-log"              // there is no log
	KindNewer       Kind = "newer"               // written by a newer etcd than is known
	KindDatabase    Kind = "damaged-database"    // a database is damaged
	KindNoDatabase  Kind = "no-database"         // there is none
	KindCutLog      Kind = "log-cut"             // the end of a log is missing
	KindMixed       Kind = "mixed"               // a database and its log are not of one history
	KindUnshown     Kind = "unshown"             // nothing shows that they are
	KindOldDatabase Kind = "old-database"        // a database is older than what is beside it
	KindForced      Kind = "forced-new-cluster"  // the member was started with --force-new-cluster
	KindRestored    Kind = "restored"            // the log was made by a restore
	KindMisnamed    Kind = "misnamed"            // the data is another member's than its name says
	KindCopy        Kind = "copy"                // another directory is of the same member
	KindRemoved     Kind = "removed"             // the member was removed from the cluster
	KindLearner     Kind = "learner"             // it does not vote
	KindCluster     Kind = "other-cluster"       // it is of another cluster
	KindHistory     Kind = "other-history"       // it went on otherwise
	KindRefused     Kind = "refused-tail"        // its last entries were refused
	KindBehind      Kind = "behind"              // others have more
	KindRolledBack  Kind = "rolled-back"         // it is older than what it held
	KindUnconnected Kind = "unconnected"         // nothing shows that it is of the same history
	KindSuperseded  Kind = "superseded"          // its timeline has ended
	KindStartedOver Kind = "started-over"        // its cluster began again without archived writes
	KindGap         Kind = "gap"                 // something is missing in an archived log
	KindBackup      Kind = "damaged-backup"      // a backup cannot be used
	KindUnreadable  Kind = "unreadable"          // an archived log could not be read
	KindBase        Kind = "nothing-to-begin-at" // a log without a database to replay it on
)

// Finding is something that the operator should know of what was found.
type Finding struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`           // what it is
	Next string `json:"next,omitempty"` // what can be done
}

func (f Finding) String() string {
	if f.Next == "" {
		return f.Text
	}
	return f.Text + ": " + f.Next
}

// counted is a number with its noun.
func counted(n uint64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func entries(n uint64) string { return counted(n, "entry", "entries") }

func (m *Remains) has(kind Kind) bool {
	return slices.ContainsFunc(m.Findings, func(f Finding) bool { return f.Kind == kind })
}

func (m *Remains) find(kind Kind, next, format string, args ...any) {
	m.Findings = append(m.Findings, Finding{kind, fmt.Sprintf(format, args...), next})
}

func (a *Archive) find(kind Kind, next, format string, args ...any) {
	a.Findings = append(a.Findings, Finding{kind, fmt.Sprintf(format, args...), next})
}
