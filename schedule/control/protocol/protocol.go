// Package protocol is what is said between `requorum agent control` and its
// clients: roles, requests and answers. docs/agent-control.md has it in words.
package protocol

import (
	"encoding/json"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/flagfile"
	"github.com/requorum/requorum/schedule/control/member"
)

// Verb is something that can be asked for.
type Verb string

// The verbs. Each has a role of its own.
const (
	Observe  Verb = "observe"
	Stop     Verb = "stop"
	Start    Verb = "start"
	SetAside Verb = "set-aside"
	Undo     Verb = "undo"
	Copy     Verb = "copy"
	Rebuild  Verb = "rebuild"
	Quiesce  Verb = "quiesce"
	Resume   Verb = "resume"
	Flags    Verb = "flags"
)

// Verbs are all of them.
func Verbs() []Verb {
	return []Verb{Observe, Stop, Start, SetAside, Undo, Copy, Rebuild, Quiesce, Resume, Flags}
}

// Role is the organisational unit that a certificate needs for a verb. One may
// have several.
func (v Verb) Role() string { return "requorum:" + string(v) }

// Paths of the verbs. Observe and Copy are asked with GET, the others with POST.
const (
	MemberPath   = "/v1/member"
	StopPath     = "/v1/stop"
	StartPath    = "/v1/start"
	SetAsidePath = "/v1/set-aside"
	UndoPath     = "/v1/undo"
	DataPath     = "/v1/data"
	RebuildPath  = "/v1/rebuild"
	QuiescePath  = "/v1/quiesce"
	ResumePath   = "/v1/resume"
	FlagsPath    = "/v1/flags"
)

// Clock is where a control process is in its own time, which no clock of a host
// decides: clocks differ after a disaster.
type Clock struct {
	// Session is one run of the process.
	Session string `json:"session"`
	// Uptime is how long it has run.
	Uptime time.Duration `json:"uptime_ns"`
}

// Header stands in each request that changes something. A request counts once:
// with a nonce that this session has not seen, and within Window of the moment
// that it names.
type Header struct {
	Member string `json:"member"` // that the client means to reach
	// Run is the recovery that the action belongs to, as its journal names it.
	// While a run has the member, others are refused.
	Run string `json:"run"`
	// TakesOver names the run that has the member, where this one is to have it
	// instead.
	TakesOver string `json:"takes_over,omitempty"`
	// Nonce is 32 hexadecimal digits, new for each request.
	Nonce string `json:"nonce"`
	// Session and At are the server's Clock at the time of the request, as the
	// client reckons: what Member said, and the time since.
	Session string        `json:"session"`
	At      time.Duration `json:"at_ns"`
}

// Window is how far a request's At may be from the server's own time.
const Window = 30 * time.Second

// Action is a request that changes something. Plan and Source are for Rebuild
// alone, and Flags for Flags.
type Action struct {
	Header
	Plan   json.RawMessage `json:"plan,omitempty"`
	Source json.RawMessage `json:"source,omitempty"`
	Flags  *flagfile.Flags `json:"flags,omitempty"`
}

// Member is the answer of Observe.
type Member struct {
	Clock   Clock       `json:"clock"`
	Name    string      `json:"name"`
	Kind    config.Kind `json:"kind"`
	DataDir string      `json:"data_dir"`
	WALDir  string      `json:"wal_dir,omitempty"`
	// Stopped is the proof that the member does not run; where there is none,
	// NotStopped says why.
	Stopped    *member.Proof `json:"stopped,omitempty"`
	NotStopped string        `json:"not_stopped,omitempty"`
	// Runs says that a process was found; without it and without Stopped it is
	// unknown.
	Runs bool `json:"runs"`
	// StopTimeout and StartTimeout are what Stop and Start may take at most.
	StopTimeout  time.Duration `json:"stop_timeout_ns"`
	StartTimeout time.Duration `json:"start_timeout_ns"`
	// Run has the member now.
	Run string `json:"run,omitempty"`
	// Cluster is the ID of the one whose log lies in the directories; empty where
	// there is none that can be read.
	Cluster string `json:"cluster_id,omitempty"`
	// Flags are those about the members that etcd is started with.
	Flags *flagfile.Found `json:"flags,omitempty"`
	// Aside are the set-asides that were not undone, oldest first.
	Aside []restore.Aside `json:"aside,omitempty"`
	// Built is the last rebuild that was not undone, where that is asked for; nil where
	// there is none.
	Built *Built `json:"built,omitempty"`
	// Clients are the configured ones, in the order in which Quiesce stops them.
	Clients []ClientState `json:"clients,omitempty"`
	// Quiesced is the run that stopped clients, or began to, and has not resumed them.
	Quiesced string `json:"quiesced,omitempty"`
	// Manual says how a member of this kind is controlled by hand.
	Manual []string `json:"manual,omitempty"`
	// Survey is what the data directory of a stopped member holds; SurveyError why
	// that cannot be told.
	Survey      json.RawMessage `json:"survey,omitempty"`
	SurveyError string          `json:"survey_error,omitempty"`
}

// Done is the answer of an action.
type Done struct {
	// Stopped is the proof, of Stop.
	Stopped *member.Proof `json:"stopped,omitempty"`
	// Aside is what was set aside, of SetAside; of Undo, what was put back.
	Aside *restore.Aside `json:"aside,omitempty"`
	// Kept is where went what an undo found in the old data's place.
	Kept []string `json:"kept,omitempty"`
	// Clients are the states of the clients afterwards, of Quiesce and Resume, in the
	// order of the configuration.
	Clients []ClientState `json:"clients,omitempty"`
	// Result is that of Rebuild.
	Result json.RawMessage `json:"result,omitempty"`
	// Flags are what was brought in line, of Flags; of Undo, what was put back.
	Flags *FlagsDone `json:"flags,omitempty"`
	// Warnings are what the operator should know of an action that was done.
	Warnings []string `json:"warnings,omitempty"`
}

// Code is why a request was refused, for programs.
type Code string

// The codes.
const (
	Forbidden   Code = "forbidden"    // the certificate has not the role
	NotFound    Code = "not-found"    // no such path, or no such file
	BadRequest  Code = "bad-request"  // it cannot be read, or names what it must not
	OtherMember Code = "other-member" // it is for another member
	Stale       Code = "stale"        // another session, or another time: ask again and send anew
	Replayed    Code = "replayed"     // the nonce was seen
	Held        Code = "held"         // another run has the member
	Busy        Code = "busy"         // another action is under way
	Running     Code = "running"      // the member has to be stopped for this
	Unstartable Code = "unstartable"  // there is no data that the member could start from
	ByHand      Code = "manual"       // this kind is controlled by hand
	NotOffered  Code = "not-offered"  // this process cannot do that
	Failed      Code = "failed"       // it was tried
)

// Refusal is the answer of what was not done.
type Refusal struct {
	Code  Code   `json:"code"`
	Error string `json:"error"`
	// Holder is the run that has the member, with Held.
	Holder string `json:"holder,omitempty"`
	// Steps are what to do by hand, with ByHand.
	Steps []string `json:"steps,omitempty"`
}

// Which data to copy.
const (
	// Current is what lies in the member's directories.
	Current = "current"
	// Aside is what the run set aside.
	Aside = "set-aside"
)

// File is one that Copy can send.
type File struct {
	// Name is relative: member/… in the data directory, wal/… where the log lies
	// in a directory of its own.
	Name string    `json:"name"`
	Size int64     `json:"size"`
	Time time.Time `json:"mtime"`
}

// Files is the list that Copy gives without a file's name.
type Files struct {
	Files []File `json:"files"`
}

// SumTrailer is the trailer that has the SHA-256 of what was sent of a file.
const SumTrailer = "Requorum-Sha256"
