// The protocol is what a coordinator and `requorum host` say to each other: lines
// of JSON over the standard input and output of a command that runs it on the host.
//
// The host process says hello first. From then on both sides ask and answer (conversation):
// the coordinator for actions on the host, the host for data of other hosts. It
// promises:
//
//  1. A line is at most maxLine long; a longer one, or one that cannot be read, ends
//     the conversation with an error that shows it.
//  2. What was asked for and not answered when the conversation ends fails with the
//     reason of that; nothing is asked twice by itself.

package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay"
)

// hello is the first line of a host process. Both sides have to be of one version:
// how data is set aside and rebuilt is no interface.
type hello struct {
	Requorum string `json:"requorum"`
}

// verb is something that can be asked for.
type verb string

// The verbs. The first five and Fetch change nothing, and Fetch is what a host asks
// the coordinator for.
const (
	verbConfigure    verb = "configure"
	verbObserve      verb = "observe"
	verbSurvey       verb = "survey"
	verbData         verb = "data"
	verbRepositories verb = "repositories"
	verbDecide       verb = "decide"
	verbStop         verb = "stop"
	verbStart        verb = "start"
	verbSetAside     verb = "set-aside"
	verbUndo         verb = "undo"
	verbRebuild      verb = "rebuild"
	verbQuiesce      verb = "quiesce"
	verbResume       verb = "resume"
	verbFetch        verb = "fetch"
)

// Header stands in each request that changes something.
type Header struct {
	Member string `json:"member,omitempty"` // that is meant
	// Run is the recovery that the action belongs to. Where a decision is stored on the
	// host, only the run of the newest one acts there.
	Run string `json:"run,omitempty"`
	// Epoch is one more than the highest that the host knew when the conversation
	// began. The host refuses a lower one than it knows: what was sent on a line that
	// was cut, and arrives once there is another one, counts for nothing.
	Epoch uint64 `json:"epoch,omitempty"`
	// Coordinator is the command that asks. Where a decision is stored on the host, only
	// the one that stored it acts there.
	Coordinator string `json:"coordinator,omitempty"`
}

// configured is the answer of Configure.
type configured struct {
	Epoch uint64 `json:"epoch"` // the highest that the host knows
}

// Decision is what a coordinator decided, and how far it is with it: only coordinators
// read its Data. It counts once all hosts that take part have stored it. They do that
// only where its Epoch is higher than that of the newest that they hold: so who goes on
// with a run, from whatever machine, stores it first, and who did so until then is
// refused from then on.
type Decision struct {
	Run   string          `json:"run"`
	Epoch uint64          `json:"epoch"`
	Data  json.RawMessage `json:"data"`
	By    string          `json:"by,omitempty"` // the coordinator; the host says it
}

// rebuildArguments are those of Rebuild.
type rebuildArguments struct {
	Plan RebuildPlan `json:"plan"`
	// Owners are the survivors on whose hosts the run has set their data aside, and which
	// can be reached.
	Owners []string `json:"owners,omitempty"`
}

// Member is the answer of Observe.
type Member struct {
	// Stopped says that it is proved that the member does not run; where it is not,
	// NotStopped says why.
	Stopped    bool   `json:"stopped"`
	NotStopped string `json:"not_stopped,omitempty"`
	// Runs says that a process was found; without it and without Stopped it is
	// unknown.
	Runs bool `json:"runs"`
	// Decisions are the newest of each run, and the newest of all last.
	Decisions []Decision `json:"decisions,omitempty"`
	// Aside are the set-asides that were not undone, oldest first.
	Aside []SetAside `json:"aside,omitempty"`
	// Built is the plan by which the run of the newest decision has built the member;
	// empty where it has not.
	Built string `json:"built,omitempty"`
	// Clients are the configured ones, in the order in which Quiesce stops them.
	Clients []ClientState `json:"clients,omitempty"`
	// Faults say what on the host a recovery would fail for, such as a program that is
	// not there.
	Faults []string `json:"faults,omitempty"`
}

// SetAside is a set-aside, as far as it got.
type SetAside struct {
	restore.Aside
	Done    bool `json:"done,omitempty"`
	Undoing bool `json:"undoing,omitempty"`
}

// Done is the answer of an action.
type Done struct {
	// Aside is what was set aside, of SetAside.
	Aside *restore.Aside `json:"aside,omitempty"`
	// Kept is where went what an undo found in the old data's place.
	Kept []string `json:"kept,omitempty"`
	// Clients are the states of the clients afterwards, of Quiesce and Resume, in the
	// order of the configuration.
	Clients []ClientState `json:"clients,omitempty"`
	// Warnings are what the operator should know of an action that was done.
	Warnings []string `json:"warnings,omitempty"`
}

// Code is why a request was refused, for programs.
type Code string

// The codes.
const (
	NotFound    Code = "not-found"    // there is no such thing
	BadRequest  Code = "bad-request"  // it cannot be read, or names what it must not
	OtherMember Code = "other-member" // it is for another member
	Outdated    Code = "outdated"     // it comes on an old line, or there is a newer decision
	Conflict    Code = "conflict"     // the newest decision is another run's
	Busy        Code = "busy"         // another action is under way
	Running     Code = "running"      // the member has to be stopped for this
	Unstartable Code = "unstartable"  // there is no data that the member could start from
	Failed      Code = "failed"       // it was tried
)

// Refusal is the answer of what was not done.
type Refusal struct {
	Code  Code   `json:"code"`
	Error string `json:"error"`
}

// RefusedError is a Refusal as an error. Err is nil where it has come over the line.
type RefusedError struct {
	Refusal Refusal
	Err     error
}

func (e *RefusedError) Error() string { return e.Refusal.Error + " (" + string(e.Refusal.Code) + ")" }
func (e *RefusedError) Unwrap() error { return e.Err }

// File is one that Data can send.
type File struct {
	// Name is relative: member/… in the data directory, wal/… where the log lies
	// in a directory of its own.
	Name string    `json:"name"`
	Size int64     `json:"size"`
	Time time.Time `json:"mtime"`
}

// DataArguments are those of Data: a list of files, or a piece of one, which is
// streamed.
type DataArguments struct {
	// Run is whose set-aside; empty for what lies in the member's directories.
	Run string `json:"run,omitempty"`
	// File is empty for the list.
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
}

// FetchArguments are those of Fetch: Data of the host that has Member.
type FetchArguments struct {
	Member string `json:"member"`
	DataArguments
}

// Sent is the answer of Data, Survey and Fetch: the list, or the SHA-256 of what was
// streamed. Of a piece the last Zeros bytes were not: they are zeros, as most of a log's
// file is that etcd has made and not filled yet.
type Sent struct {
	Files []File `json:"files,omitempty"`
	Sum   string `json:"sha256,omitempty"`
	Zeros int64  `json:"zeros,omitempty"`
}

// RebuildPlan is what every host of the new cluster
// builds. All but Beside is the same for all of them.
type RebuildPlan struct {
	// ID names the plan: a member that was built by the plan of this ID is not
	// built again.
	ID string `json:"id"`
	// Old is the ID of the cluster that was lost. New is that of the one that is
	// built, as it follows from the token and the URLs: a host that comes to
	// another one refuses.
	Old snapshot.ID `json:"old_cluster_id"`
	New snapshot.ID `json:"new_cluster_id"`
	// Source is what is replayed. A host may take another one of Source.Others,
	// which all end at the same entry.
	Source sources.Source `json:"source"`
	// CompareWith are owners whose databases other hosts begin from: this one takes
	// another's where it can, so that what the hosts came to can be compared. It is
	// what differs between hosts.
	CompareWith []string `json:"beside,omitempty"`
	// Target is where the replay ends; the zero value is the source's end.
	Target walreplay.Target `json:"target,omitzero"`

	InitialCluster string   `json:"initial_cluster"`
	ClusterToken   string   `json:"cluster_token"`
	Learners       []string `json:"learners,omitempty"`

	Bump restore.BumpRequest `json:"bump"`
	// HighestKnown is the highest revision that the old cluster can have reached.
	HighestKnown int64          `json:"highest_known"`
	Replay       ReplaySettings `json:"replay"`
}

// ReplaySettings say how the old cluster's members were configured: see
// walreplay.Options.
type ReplaySettings struct {
	MinLeaseTTL        time.Duration `json:"min_lease_ttl_nanoseconds,omitempty"`
	PersistCheckpoints bool          `json:"persist_checkpoints,omitempty"`
	SourceVersion      string        `json:"source_version,omitempty"`
}

// Rebuilt is the answer of Rebuild: what was built. All but Way, Brought and Phases
// has to be equal on all hosts.
type Rebuilt struct {
	// Recipe is nil where nothing had to be replayed.
	Recipe  *walreplay.Recipe   `json:"recipe,omitempty"`
	Restore *restore.Result     `json:"restore"`
	Brought []Brought           `json:"brought"`
	Phases  []restore.PhaseTime `json:"phases"`

	// Source is which of the plan's sources was replayed, without others.
	Source *sources.Source `json:"way,omitempty"`
	// Index to HashKV are those of the state that was rebuilt: before the bump.
	Index    uint64          `json:"raft_index"`
	Term     uint64          `json:"raft_term"`
	Revision int64           `json:"revision"`
	HashKV   snapshot.HashKV `json:"hashkv"`
	// Image is what the new cluster is held against, beside its keys; nil where it was
	// not looked at.
	Image *serve.Expected `json:"image,omitempty"`
	// Notes are sentences for the operator about the replay.
	Notes []string `json:"notes,omitempty"`
	// Earlier says that an earlier request of the same run had built it.
	Earlier bool `json:"earlier,omitempty"`
}

// Brought is one owner's data that a rebuild read.
type Brought struct {
	Owner string `json:"owner"`
	// From is "this host", the member of another host, or a repository.
	From  string        `json:"from"`
	Bytes int64         `json:"bytes"`
	Took  time.Duration `json:"took_nanoseconds"`
	// Why says why it was taken from there, where there was a choice, and which
	// one failed.
	Why string `json:"why,omitempty"`
}

// HereName is Brought.From of what lay on the host itself.
const HereName = "this host"

// Stored is what a way to a state reads of a repository: a full snapshot of a timeline,
// or, where Backup is empty, the timeline's log.
type Stored struct {
	Timeline repository.TimelineID
	Backup   string
}

// String is TIMELINE/BACKUP, or TIMELINE of a log. ParseStored reads it.
func (s Stored) String() string {
	if s.Backup == "" {
		return s.Timeline.String()
	}
	return s.Timeline.String() + "/" + s.Backup
}

// What calls it in a sentence.
func (s Stored) What() string {
	if s.Backup == "" {
		return "the log of timeline " + s.Timeline.String()
	}
	return "backup " + s.Backup
}

// parseStored reads what String gives.
func parseStored(text string) (s Stored, err error) {
	timeline, backup, is := strings.Cut(text, "/")
	if s.Timeline, err = repository.ParseTimelineID(timeline); err != nil {
		return s, err
	}
	if s.Backup = backup; !is {
		return s, nil
	}
	if err := repository.ValidBackupID(backup); err != nil {
		return s, fmt.Errorf("backup of timeline %s: %w", timeline, err)
	}
	return s, nil
}

// MarshalText makes it JSON's string.
func (s Stored) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseStored.
func (s *Stored) UnmarshalText(text []byte) (err error) {
	*s, err = parseStored(string(text))
	return err
}

// Repository is what a host can read of one.
type Repository struct {
	URL string `json:"url"` // without secrets
	// Error says why it cannot be opened; empty where it can.
	Error string `json:"error,omitempty"`
	// Lacks are those of the pieces asked for that cannot be read there.
	Lacks []Lack `json:"lacks,omitempty"`
}

// Lack is a piece that cannot be read, and why.
type Lack struct {
	Piece Stored `json:"piece"`
	// Absent: it is not there; otherwise it is, and cannot be read.
	Absent bool   `json:"absent,omitempty"`
	Why    string `json:"why"`
}

// Unreadable says why it cannot be opened, or what is there cannot be read; empty where
// all that is there can.
func (r *Repository) Unreadable() string {
	var all []string
	for _, l := range r.Lacks {
		if !l.Absent {
			all = append(all, l.Why)
		}
	}
	return cmp.Or(r.Error, strings.Join(all, "; "))
}

// Unread says why one of the pieces cannot be read; empty where all can.
func (r *Repository) Unread(pieces []Stored) string {
	if r.Error != "" {
		return r.Error
	}
	for _, l := range r.Lacks {
		for _, p := range pieces {
			if p == l.Piece {
				return l.Why
			}
		}
	}
	return ""
}

// ClientPhase is how far a recovery got with a client.
type ClientPhase string

// The phases. A client that no recovery has touched has none.
const (
	ClientStopping   ClientPhase = "stopping"
	ClientStopped    ClientPhase = "stopped" // by Quiesce, and proved
	ClientStarting   ClientPhase = "starting"
	ClientStarted    ClientPhase = "started"
	ClientRestarting ClientPhase = "restarting"
	ClientRestarted  ClientPhase = "restarted"
	ClientLeft       ClientPhase = "left" // stopped before the recovery, and left so by Resume
)

// ClientState is one of the configured clients, as it is now.
type ClientState struct {
	Name string          `json:"name"`
	Kind supervisor.Kind `json:"kind"`
	// Restart says that Quiesce leaves it alone, and Resume restarts it.
	Restart bool `json:"restart,omitempty"`
	// Stopped says that it is proved that the client does not run and will not come
	// up by itself. Where it is not proved, Why says the reason, and Runs whether
	// something that runs was found: without Runs and without Stopped it is unknown.
	Stopped bool   `json:"stopped"`
	Runs    bool   `json:"runs"`
	Why     string `json:"why,omitempty"`
	// Phase is what the recovery that has the host did with it, and Ran whether it
	// ran before that: what did not is not started by Resume.
	Phase ClientPhase `json:"phase,omitempty"`
	Ran   *bool       `json:"ran,omitempty"`
	// Timeout is what Phase may take at most, where it is one that is under way.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

var runID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{7,63}$`)

// checkRun fails where s cannot be a run's ID: 8 to 64 letters, digits, dots and
// hyphens.
func checkRun(s string) error {
	if !runID.MatchString(s) {
		return fmt.Errorf("run %q: want 8 to 64 letters, digits, dots and hyphens", s)
	}
	return nil
}
