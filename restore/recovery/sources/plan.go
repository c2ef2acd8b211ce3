package sources

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// PlanFormat is the number of the plan's JSON format.
const PlanFormat = 1

// DecideRequest says what the operator wants.
type DecideRequest struct {
	// Source names a candidate, or is empty: the best one then, where only one
	// history is there to choose from.
	Source string
	// DeclareDead are the names or IDs of members that will never start again.
	DeclareDead []string
	// Hosts are names that DeclareDead may have although no member of the cluster that
	// was found is called so, such as those of an earlier recovery's lost hosts.
	Hosts []string
	// Stopping are the names of old members that may run, and that who carries it out
	// stops before anything else.
	Stopping []string
	// Target is the point to recover; the zero value is the newest.
	Target walreplay.Target
	// SourceVersion is what the replay will know of the old members' etcd; empty
	// where it knows nothing, and the plan warns where that may matter.
	SourceVersion string
}

// Plan is what was decided, and why. Its JSON form is stable.
type Plan struct {
	Format int `json:"format"`
	// ClusterID is the old cluster's.
	ClusterID snapshot.ID `json:"cluster_id,omitzero"`
	// Histories are distinguished by what they hold. Candidates are by history, and
	// within one by rank.
	Histories  []History   `json:"histories"`
	Candidates []Candidate `json:"candidates"`
	// Chosen is the name of a candidate; empty where none was.
	Chosen string `json:"chosen,omitempty"`
	Named  bool   `json:"named,omitempty"` // it was asked for by name
	Target string `json:"target"`          // the point that was asked for, in words
	// Proven: every write that was ever acknowledged is in what was chosen. Why
	// says, in words, what shows it, or what may be missing.
	Proven bool   `json:"proven"`
	Why    string `json:"why"`
	Loss   Loss   `json:"loss"`
	Bump   Bump   `json:"bump"`
	Fence  Fence  `json:"fence"`
	// Members are those of the newest membership, with its learners, by ID.
	Members []snapshot.Member `json:"members"`
	// Warnings are what has to be known beside Why and Doubts.
	Warnings []string `json:"warnings,omitempty"`
}

// History is one history of the cluster, as far as anything of it was found.
type History struct {
	Number    int                     `json:"number"` // from 1
	ClusterID snapshot.ID             `json:"cluster_id,omitzero"`
	Timelines []repository.TimelineID `json:"timelines,omitempty"`
	Survivors []string                `json:"survivors,omitempty"`
	LastIndex uint64                  `json:"last_index"`
	LastTerm  uint64                  `json:"last_term"`
	// Candidate: it has to be asked about where there is more than one. Why says
	// what it is.
	Candidate bool   `json:"candidate"`
	Why       string `json:"why"`
}

// CandidateKind is what a candidate is made of.
type CandidateKind string

// The kinds of candidates.
const (
	FromSurvivor CandidateKind = "survivor"
	FromArchive  CandidateKind = "archive"
	FromJoined   CandidateKind = "joined" // a database and logs of several
	FromDatabase CandidateKind = "database"
)

// order is that of candidates which reach equally far: a member's own data is on
// the spot, and needs nothing else.
func (k CandidateKind) order() int {
	return slices.Index([]CandidateKind{FromSurvivor, FromJoined, FromArchive, FromDatabase}, k)
}

// Candidate is a state that can be rebuilt.
type Candidate struct {
	Name    string        `json:"name"`
	Kind    CandidateKind `json:"kind"`
	History int           `json:"history"` // 0: not known
	// Rank is from 1 within its history; 0 for one that is used only when it is
	// named.
	Rank      int    `json:"rank"`
	LastIndex uint64 `json:"last_index"`
	LastTerm  uint64 `json:"last_term"` // 0 where it is not known
	Revision  Bounds `json:"revision"`
	// Time is the newest that is known of it, in words.
	Time string `json:"time,omitempty"`
	// Lost is what it lacks of the best that was seen anywhere in its history.
	Lost Loss `json:"lost"`
	// Why says why it has its rank, or none.
	Why      string    `json:"why"`
	Findings []Finding `json:"findings,omitempty"`
	// Source is how it is rebuilt; nil where it cannot be.
	Source *Source `json:"source,omitempty"`
}

// Source is how a candidate is rebuilt: a database, and the entries after it.
type Source struct {
	Base Base `json:"base"`
	// Log are the pieces after it, each beginning where the one before ends: the log that the
	// candidate ends with and, before it, at most one survivor's and one archive's. None if the
	// database is the state itself.
	Log []Piece `json:"log"`
	// Index and Term are of the last entry; the term is 0 where it is not known.
	Index uint64 `json:"raft_index"`
	Term  uint64 `json:"raft_term"`
	// Peers are the other survivors whose databases must hold the same keys. None if it begins
	// with a backup, which has checksums.
	Peers []Peer `json:"peers,omitempty"`
}

// Peer is another survivor's database that what is rebuilt is compared with.
type Peer struct {
	Owner    string `json:"owner"`
	Revision int64  `json:"revision"` // its newest
	// Source names the way from it to the same entry, for --source; empty if there is none.
	Source string `json:"source,omitempty"`
}

// Base is a database that a replay begins from.
type Base struct {
	Owner string `json:"owner"` // the survivor or archive that has it
	// Path is a member's file; empty for a log that begins with the cluster's first
	// entry. Backup is a full snapshot's ID, in Timeline of Repository.
	Path       string                `json:"path,omitempty"`
	Backup     string                `json:"backup,omitempty"`
	Timeline   repository.TimelineID `json:"timeline,omitzero"`
	Repository string                `json:"repository,omitempty"`
	Index      uint64                `json:"raft_index"`
	Term       uint64                `json:"raft_term"`
	Revision   int64                 `json:"revision"`
}

// Piece is a part of somebody's log.
type Piece struct {
	Owner string `json:"owner"`
	First uint64 `json:"first_index"`
	Last  uint64 `json:"last_index"`
}

// Loss is what a state lacks.
type Loss struct {
	// Entries are those of the log that something shows were there, and Revisions
	// at most how many revisions that makes.
	Entries   uint64 `json:"entries"`
	Revisions int64  `json:"revisions_at_most"`
	Text      string `json:"text"`
}

// Bump says whether the revision has to rise beyond what clients may have seen.
type Bump struct {
	Raise bool `json:"raise"`
	// HighestKnown is the highest revision that anything found can have reached.
	HighestKnown int64  `json:"highest_known"`
	Reason       string `json:"reason"`
}

// Fence is about old members that could come back and serve beside the new
// cluster. No recovery starts before Enough.
type Fence struct {
	Stopped      []string `json:"stopped"`       // their directories were looked at, and nothing runs on them
	DeclaredDead []string `json:"declared_dead"` // by the operator
	// Stopping may run, and are stopped before anything else; Open are the rest.
	Stopping []string `json:"to_be_stopped,omitempty"`
	Open     []string `json:"open"`
	Enough   bool     `json:"enough"`
	// Closes says that it will be enough once Stopping are stopped.
	Closes bool   `json:"closes"`
	Why    string `json:"why"`
}

// Candidate is the one of a name, nil where there is none.
func (p *Plan) Candidate(name string) *Candidate {
	for i := range p.Candidates {
		if p.Candidates[i].Name == name {
			return &p.Candidates[i]
		}
	}
	return nil
}

// Doubts are the findings about what was chosen that more than its loss depends on, each
// with its name.
func (p *Plan) Doubts() (all []string) {
	c := p.Candidate(p.Chosen)
	if c == nil {
		return nil
	}
	for _, f := range c.Findings {
		if f.Kind != KindTorn && f.Kind != KindGap && f.Kind != KindRestored {
			all = append(all, c.Name+": "+f.String())
		}
	}
	return all
}

// NeedSourceError says that there is more than one history to choose from.
type NeedSourceError struct{ Histories []History }

func (e *NeedSourceError) Error() string {
	var all []string
	for _, h := range e.Histories {
		all = append(all, fmt.Sprintf("history %d: %s", h.Number, h.Why))
	}
	if len(all) == 1 {
		return "this history is not chosen by itself: " + e.Histories[0].Why + "\nIf it is the one to go on with, name a candidate of it with --source"
	}
	return fmt.Sprintf("%d histories were found that went different ways, and nothing in them shows which one is to go on; they are never mixed or ranked against each other:\n  %s\nName a candidate of the right one with --source", len(all), strings.Join(all, "\n  "))
}

// NothingError says that there is nothing to recover from. It is a
// snapshot.ErrNoBackup.
type NothingError struct {
	Reasons []string
	// Nameable are candidates that are used only when they are named.
	Nameable []string
	// Mixed are members' directories whose database and log are not of one history.
	Mixed []string
}

func (e *NothingError) Error() string {
	next := "name more data directories, or a repository with a backup"
	if len(e.Nameable) > 0 {
		next += ", or, with --source, one of " + strings.Join(e.Nameable, ", ")
	}
	return "nothing was found that a cluster can be rebuilt from unless it is named: " + strings.Join(append(slices.Clone(e.Reasons), next), "; ")
}

// Is makes it one of "nothing to restore".
func (e *NothingError) Is(target error) bool { return target == snapshot.ErrNoBackup }

// Unwrap returns a *snapshot.DamagedError if a directory is mixed.
func (e *NothingError) Unwrap() error {
	if len(e.Mixed) == 0 {
		return nil
	}
	return &snapshot.DamagedError{Object: strings.Join(e.Mixed, ", "), Offset: -1, Err: errors.New("the database and the log are not of one history")}
}

// SourceError says that no candidate has the name that was asked for, or that it
// cannot be rebuilt.
type SourceError struct {
	Source string
	Reason string
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("--source %s: %s", e.Source, e.Reason)
}

// AboutSource reports whether an error of Decide says what there is to recover from: another
// source, or more to read, can end it.
func AboutSource(err error) bool {
	var need *NeedSourceError
	var source *SourceError
	var nothing *NothingError
	return errors.As(err, &need) || errors.As(err, &source) || errors.As(err, &nothing)
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
