package web

// A Status is what an agent knows at one moment, as data: what the API
// gives, what the page shows, what the metrics count and what heartbeats
// depend on. Its JSON form is stable; docs/json.md describes it.

import (
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// Status is what one agent knows.
type Status struct {
	Time    time.Time `json:"time"`    // of this answer
	Started time.Time `json:"started"` // when the agent started
	Agent   string    `json:"agent"`   // its name
	Tool    string    `json:"tool"`    // such as "requorum 1.2.3"
	// Archives says that this agent is to archive a member's log.
	Archives bool `json:"archives"`
	// Writer says that this agent writes the archive; the others stand by.
	Writer bool `json:"writer"`

	Cluster    Cluster    `json:"cluster"`
	Repository Repository `json:"repository"`
	// Archive is nil where the agent archives no log.
	Archive *archive.State `json:"archive,omitempty"`

	RPO RPO `json:"rpo"`
	RTO RTO `json:"rto"`
	// Objectives are what the configuration asks for.
	Objectives Objectives `json:"objectives"`

	// Agents are this agent, and the others that gave a sign of life in the repository
	// within a day.
	Agents []Agent      `json:"agents"`
	Jobs   []job.Status `json:"jobs"`
	// Problems are what somebody has to look at; none is in order.
	Problems []Problem `json:"problems"`
	// Certificates are those of the agent and of its connection to etcd.
	Certificates []Certificate `json:"certificates"`
}

// Agent is one agent of the repository, as it described itself when it was seen last.
type Agent struct {
	Name string    `json:"name"`
	Host string    `json:"host,omitempty"`
	Tool string    `json:"tool,omitempty"`
	Seen time.Time `json:"seen"`           // by its own clock
	Role string    `json:"role,omitempty"` // of its archiver; empty without one
	Jobs []string  `json:"jobs"`           // that ran
	// Keeps is what its retention keeps, in words; empty if it does not prune.
	Keeps string `json:"keeps,omitempty"`
	// Lease says that it ran the newest of the jobs that the agents share; Self that it is this agent.
	Lease bool `json:"lease"`
	Self  bool `json:"self"`
}

// silentAfter is longer than an archiver takes for three signs of life.
const silentAfter = 16 * time.Minute

// Silent reports that an archiver gives no sign of life any more. An agent without one gives a
// sign only with a job.
func (a Agent) Silent(now time.Time) bool {
	return !a.Self && a.Role != "" && now.Sub(a.Seen) > silentAfter
}

// Cluster is the cluster as it last answered.
type Cluster struct {
	ID    string    `json:"id,omitempty"` // 16 hexadecimal digits; empty where nobody answered yet
	Asked time.Time `json:"asked,omitzero"`
	Error string    `json:"error,omitempty"` // why there is no newer answer
	// Down is since when no member answers, or none sees a leader; zero if one does.
	Down    time.Time `json:"down_since,omitzero"`
	Members []Member  `json:"members"`
	// Divergent are members whose history differs from the others'; empty where
	// none is known to. Compared is when the histories were last held against
	// each other, at which revision.
	Divergent        []string  `json:"divergent"`
	Compared         time.Time `json:"compared,omitzero"`
	ComparedRevision int64     `json:"compared_revision,omitempty"`
}

// Member is one member of the cluster.
type Member struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Version  string `json:"version,omitempty"`
	Role     string `json:"role,omitempty"` // leader, follower, learner
	Local    bool   `json:"local"`          // the one that this agent stands beside
	Revision int64  `json:"revision,omitempty"`
	Applied  uint64 `json:"applied,omitempty"`
	DBSize   int64  `json:"db_size_bytes,omitempty"`
	Full     bool   `json:"full,omitempty"` // etcd's alarm NOSPACE is raised for it
	// Unfit says why nothing is read from this member now; empty where it may be.
	Unfit string `json:"unfit,omitempty"`
	Error string `json:"error,omitempty"` // why it does not answer
}

// Repository is what is stored, as it was last listed.
type Repository struct {
	URL    string    `json:"url"` // without secrets
	ID     string    `json:"id,omitempty"`
	Listed time.Time `json:"listed,omitzero"`
	// Seen is when the repository last answered: its marker exists, and it can be listed.
	Seen  time.Time `json:"seen,omitzero"`
	Error string    `json:"error,omitempty"` // why it does not answer, or there is no newer listing
	// Backups are all full snapshots, the oldest first within a timeline.
	Backups []Backup `json:"backups"`
	// Ranges are what can be restored and the gaps between, of every timeline.
	Ranges []walreplay.Range `json:"ranges"`
	// Timelines are the descriptors of all timelines: where each branches off.
	Timelines []repository.Timeline `json:"timelines"`
	// Timeline is the one that the cluster goes on in now; zero where not known.
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	// FullBytes and LogBytes are what full snapshots and the log take, as stored.
	FullBytes int64 `json:"full_bytes"`
	LogBytes  int64 `json:"log_bytes"`
}

// Backup is one full snapshot.
type Backup struct {
	ID       string                `json:"id"`
	Timeline repository.TimelineID `json:"timeline"`
	Time     time.Time             `json:"time"` // when it was begun
	Finished time.Time             `json:"finished"`
	Revision int64                 `json:"revision"`
	Index    uint64                `json:"index"`
	Stored   int64                 `json:"stored_bytes"`
	Raw      int64                 `json:"raw_bytes"`
	Source   string                `json:"source"` // the member
	Pinned   bool                  `json:"pinned"`
	// Encrypted says whether it is encrypted; SignedBy is nil if nobody signed it.
	Encrypted bool              `json:"encrypted"`
	SignedBy  *signing.SignedBy `json:"signed_by,omitempty"`
	Damaged   string            `json:"damaged,omitempty"` // what a listing or a verdict found wrong
	// Proved is the highest level that it has passed, ProvedAt when; empty where
	// none. Failed is a level that the newest verdict on it found damage at.
	Proved   report.Level `json:"proved,omitempty"`
	ProvedAt time.Time    `json:"proved_at,omitzero"`
	Failed   report.Level `json:"failed,omitempty"`
}

// RPO is what would be lost if everything but the repository burned now.
type RPO struct {
	// Known says that Until holds now: not before the first backup, and not while the
	// repository does not answer.
	Known bool `json:"known"`
	// Unknown is since when the repository does not answer; zero if it does. Until then is
	// what it was when the repository was seen last.
	Unknown time.Time `json:"unknown_since,omitzero"`
	// Until is the time up to which every acknowledged write can be restored from
	// the repository alone, by this host's clock. It also advances while nothing
	// is written, once the cluster has confirmed that.
	Until time.Time `json:"until,omitzero"`
	// Seconds is Time - Until.
	Seconds float64 `json:"seconds"`
	// Text says it for people: "nothing older than 3 s would be lost".
	Text string `json:"text"`
}

// Objectives are what the configuration asks for, in seconds: what is worse is a
// problem, and an alert.
type Objectives struct {
	RecoveryPoint     float64 `json:"recovery_point_seconds"`     // how much may be lost
	VerifiedWithin    float64 `json:"verified_within_seconds"`    // how old the newest backup that passed structure may be
	CertificateNotice float64 `json:"certificate_notice_seconds"` // how long before it expires a certificate is to be renewed
}

// RTO is about how long it would take to have a serving cluster again.
type RTO struct {
	Known   bool    `json:"known"`
	Seconds float64 `json:"seconds"`
	// Measured is when a drill measured it; zero for an estimate.
	Measured time.Time `json:"measured,omitzero"`
	// Text says it for people, with what it rests on.
	Text string `json:"text"`
}

// Severity says how soon a problem is to be looked at.
type Severity string

// The severities.
const (
	// Critical: what is promised does not hold now.
	Critical Severity = "critical"
	// Warning: it will not hold for long.
	Warning Severity = "warning"
)

// Problem is a condition that lasts. Kinds of the archiver are its alarms'
// names (see archive.Alarm); others are constants of this package.
type Problem struct {
	Kind     string    `json:"kind"`
	Severity Severity  `json:"severity"`
	Since    time.Time `json:"since"`
	Text     string    `json:"text"`           // what is wrong, and the reason
	Next     string    `json:"next,omitempty"` // what to do
}

// Kinds of problems beside the archiver's alarms.
const (
	KindCluster       = "cluster"       // no member answers, or no quorum
	KindMember        = "local-member"  // the local member does not answer, or is another one
	KindRemote        = "remote-member" // another member does not answer
	KindRepository    = "repository-away"
	KindRecoveryPoint = "recovery-point" // what would be lost grows beyond the limit
	KindStartedOver   = "started-over"   // the cluster began again without archived writes
	KindJob           = "job"            // a job failed and has not succeeded since
	KindLate          = "late"           // a job's success is overdue
	KindVerify        = "verify"         // a verification found damage
	KindUnverified    = "unverified"     // no backup has passed structure for long
	KindDivergent     = "divergent"      // members' histories differ
	KindCorrupt       = "corrupt"        // etcd's own corruption alarm
	KindNoSpace       = "no-space"       // etcd's own alarm that the quota is reached
	KindRetention     = "retention"      // what should go cannot
	KindCertificate   = "certificate"    // one expires soon, or has
	KindIdentity      = "identity"       // the identities do not open what the recipients close
	KindWriter        = "no-writer"      // nobody writes the archive
	KindSpace         = "space"          // the scratch or spool folder runs full
	KindConfig        = "config"         // a reload was refused; the old configuration goes on
	KindHeartbeat     = "heartbeat"      // a ping could not be delivered
)

// Certificate is one that the agent depends on.
type Certificate struct {
	Use     string    `json:"use"` // such as "etcd client" or "etcd server https://…"
	Place   string    `json:"place"`
	Expires time.Time `json:"expires"`
	Error   string    `json:"error,omitempty"`
}

// Ready reports whether everything that the agent promises holds now: no problem
// is critical. Why not is in the first one's text.
func (s *Status) Ready() (bool, string) {
	for _, p := range s.Problems {
		if p.Severity == Critical {
			return false, p.Text
		}
	}
	return true, ""
}
