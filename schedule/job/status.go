package job

import (
	"encoding/json"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Status is a job as it stands; its JSON form is part of the agent's status.
type Status struct {
	Name     string `json:"name"`     // full, checksum, structure, replay, drill, prune, merge, divergence
	Schedule string `json:"schedule"` // as configured; empty for one that runs on demand only
	// Off says why the job does not run here, in words; empty where it may.
	Off  string    `json:"off,omitempty"`
	Next time.Time `json:"next,omitzero"`
	// Waiting is what keeps a slot that is due from being begun here, in words:
	// another agent is at it, or goes first.
	Waiting string `json:"waiting,omitempty"`
	// Running is the run under way here, nil where none is.
	Running *Run `json:"running,omitempty"`
	// Last is the newest finished run by any agent, LastSuccess and LastFailure
	// the newest that ended so.
	Last        *Run `json:"last,omitempty"`
	LastSuccess *Run `json:"last_success,omitempty"`
	LastFailure *Run `json:"last_failure,omitempty"`
}

// Run is one run of a job.
type Run struct {
	Slot     string    `json:"slot"`
	Agent    string    `json:"agent"` // who did it
	Attempt  int       `json:"attempt"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"` // zero while it is under way
	OK       bool      `json:"ok"`
	// Text says what was done, or why it failed, in a sentence.
	Text   string `json:"text,omitempty"`
	Backup string `json:"backup,omitempty"` // the full snapshot that was made
	Bytes  int64  `json:"bytes,omitempty"`  // stored or read
	// Damaged reports that it failed because it found damage in the repository.
	Damaged bool            `json:"damaged,omitempty"`
	Detail  json.RawMessage `json:"-"` // Result.Detail
	// About describes the agent; nil if that is not known.
	About *repository.Agent `json:"-"`
	// Phase, Done and Total are the progress of a run under way.
	Phase string `json:"phase,omitempty"`
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
}
