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
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
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
	verbConfigure verb = "configure"
	verbObserve   verb = "observe"
	verbSurvey    verb = "survey"
	verbData      verb = "data"
	verbHash      verb = "hash"
	verbDecide    verb = "decide"
	verbStop      verb = "stop"
	verbStart     verb = "start"
	verbSetAside  verb = "set-aside"
	verbUndo      verb = "undo"
	verbRebuild   verb = "rebuild"
	verbQuiesce   verb = "quiesce"
	verbResume    verb = "resume"
	verbFetch     verb = "fetch"
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

// hashArguments are those of Hash.
type hashArguments struct {
	Run      string `json:"run,omitempty"` // whose set-aside; empty for the member's directories
	Revision int64  `json:"revision"`
}

// startArguments are those of Start.
type startArguments struct {
	Ended []Ended `json:"ended,omitempty"` // in the repositories
}

// quiesceArguments are those of Quiesce.
type quiesceArguments struct {
	// Kill says that clients are killed that take long to end: without a quorum they wait for
	// requests that nobody answers.
	Kill bool `json:"kill,omitempty"`
}

// resumeArguments are those of Resume.
type resumeArguments struct {
	// All says that clients are started, too, that did not run when they were quiesced.
	All bool `json:"all,omitempty"`
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
	// Aside are the set-asides that were not undone, oldest first, and Undone the runs
	// whose set-asides were.
	Aside  []SetAside `json:"aside,omitempty"`
	Undone []string   `json:"undone,omitempty"`
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
	// Undone is what was put back, of Undo.
	Undone *Undone `json:"undone,omitempty"`
	// Clients are the states of the clients afterwards, of Quiesce and Resume, in the
	// order of the configuration.
	Clients []ClientState `json:"clients,omitempty"`
	// Warnings are what the operator should know of an action that was done.
	Warnings []string `json:"warnings,omitempty"`
}

// Undone is an undo of a run on a host.
type Undone struct {
	Run string `json:"run"`
	// PutBack is the data directory whose old content is back; empty if the run had found
	// nothing to set aside. Kept is where the undo moved what it found in that place.
	PutBack string   `json:"put_back,omitempty"`
	Kept    []string `json:"kept,omitempty"`
	// New is the cluster whose member the run had built, in the place of Old; zero if it
	// had built none.
	Old snapshot.ID `json:"old_cluster_id,omitzero"`
	New snapshot.ID `json:"new_cluster_id,omitzero"`
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

// FetchArguments are those of Fetch: Data of the host that has Member, or of the coordinator if that is empty.
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

// RebuildPlan is what every host of the new cluster builds.
type RebuildPlan struct {
	// ID names the plan: a member that was built by the plan of this ID is not
	// built again.
	ID string `json:"id"`
	// Old is the ID of the cluster that was lost. New is that of the one that is
	// built, as it follows from the token and the URLs: a host that comes to
	// another one refuses.
	Old snapshot.ID `json:"old_cluster_id"`
	New snapshot.ID `json:"new_cluster_id"`
	// Source is what is replayed. With Image it was replayed already, elsewhere, and the member
	// gets that.
	Source sources.Source `json:"source"`
	Image  *Image         `json:"image,omitempty"`
	// Target is where the replay ends; the zero value is the source's end.
	Target walreplay.Target `json:"target,omitzero"`

	InitialCluster string   `json:"initial_cluster"`
	ClusterToken   string   `json:"cluster_token"`
	Learners       []string `json:"learners,omitempty"`

	Bump restore.BumpRequest `json:"bump"`
	// HighestKnown is the highest revision that the old cluster can have reached.
	HighestKnown int64                 `json:"highest_known"`
	Replay       engine.SourceSettings `json:"replay"`
}

// State is what was rebuilt, before anything is changed for the new cluster. It is the same for
// all members.
type State struct {
	Source *sources.Source `json:"way,omitempty"` // that was replayed
	// Recipe is nil if nothing had to be replayed.
	Recipe   *walreplay.Recipe `json:"recipe,omitempty"`
	Index    uint64            `json:"raft_index"`
	Term     uint64            `json:"raft_term"`
	Revision int64             `json:"revision"`
	HashKV   snapshot.HashKV   `json:"hashkv"`
	// Hashes are those at the newest revisions of the source's peers.
	Hashes []snapshot.HashKV `json:"peer_hashes,omitempty"`
	// Notes are sentences for the operator about the replay.
	Notes []string `json:"notes,omitempty"`
}

// Image is a database that was built, which all other hosts get.
type Image struct {
	ID string `json:"id"` // another one each time that one is built
	// From is the member whose host has it, as its own; empty for the coordinator, which has
	// changed nothing for the new cluster.
	From string `json:"from,omitempty"`
	Size int64  `json:"size"`
	State
}

func (i *Image) where() string { return cmp.Or(i.From, "the coordinator") }

// Rebuilt is the answer of Rebuild: what was built.
type Rebuilt struct {
	State
	Restore *restore.Result     `json:"restore"`
	Brought []Brought           `json:"brought"`
	Phases  []restore.PhaseTime `json:"phases"`
	// AuthEnabled is whether the built database enforces users and roles.
	AuthEnabled bool `json:"auth_enabled,omitempty"`
	// Image is for the other hosts, if this one has built it.
	Image *Image `json:"image,omitempty"`
	// Earlier says that an earlier request of the same run had built it.
	Earlier bool `json:"earlier,omitempty"`
}

// Brought is what a host got from another one, or the coordinator.
type Brought struct {
	From  string        `json:"from"`
	Bytes int64         `json:"bytes"`
	Took  time.Duration `json:"took_nanoseconds"`
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
	// ran before that.
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
