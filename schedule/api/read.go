package api

import (
	"net/http"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// known is the status, or nil once the client was told that there is none yet.
func (a *api) known(w http.ResponseWriter) *status.Status {
	st := a.Status()
	if st == nil {
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "the agent is starting: try again in a few seconds")
	}
	return st
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) {
	if st := a.known(w); st != nil {
		answer(w, http.StatusOK, st)
	}
}

// Backups is the answer of /api/v1/backups: the part of the status that tells
// what is stored, and what can be restored.
type Backups struct {
	Listed    time.Time             `json:"listed,omitzero"`
	Error     string                `json:"error,omitempty"`
	Backups   []status.Backup       `json:"backups"`
	Ranges    []walreplay.Range     `json:"ranges"`
	Timelines []repository.Timeline `json:"timelines"`
	Timeline  repository.TimelineID `json:"timeline,omitzero"`
}

func (a *api) backups(w http.ResponseWriter, _ *http.Request) {
	if st := a.known(w); st != nil {
		r := st.Repository
		answer(w, http.StatusOK, Backups{r.Listed, r.Error, list(r.Backups), list(r.Ranges), list(r.Timelines), r.Timeline})
	}
}

// Jobs is the answer of /api/v1/jobs.
type Jobs struct {
	Jobs []status.Job `json:"jobs"`
}

func (a *api) jobs(w http.ResponseWriter, _ *http.Request) {
	if st := a.known(w); st != nil {
		answer(w, http.StatusOK, Jobs{list(st.Jobs)})
	}
}

// list is written as [] where it is empty, not as null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
