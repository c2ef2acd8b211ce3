package recovery

import "fmt"

// Kind is what a finding is about. The texts are stable.
type Kind string

// The kinds of findings.
const (
	KindTorn        Kind = "torn-tail"           // a last record that a crash cut off: harmless
	KindBrokenLog   Kind = "broken-log"          // damage in the middle of a log
	KindMissing     Kind = "missing-files"       // older files of a log are gone
	KindNoLog       Kind = "no-log"              // there is no log
	KindNewer       Kind = "newer"               // written by a newer etcd than is known
	KindDatabase    Kind = "damaged-database"    // a database is damaged
	KindNoDatabase  Kind = "no-database"         // there is none
	KindCutLog      Kind = "cut-log"             // a log is shorter than it was
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

func (m *Remains) find(kind Kind, next, format string, args ...any) {
	m.Findings = append(m.Findings, Finding{kind, fmt.Sprintf(format, args...), next})
}

func (a *Archive) find(kind Kind, next, format string, args ...any) {
	a.Findings = append(a.Findings, Finding{kind, fmt.Sprintf(format, args...), next})
}
