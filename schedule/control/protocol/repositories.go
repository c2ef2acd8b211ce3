package protocol

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
)

// RepositoriesPath is where a host is asked, with GET and the role of Observe, what it
// can read of the repositories that its own configuration names. The query has
// piece=P for each Stored that is asked for.
const RepositoriesPath = "/v1/repositories"

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

// ParseStored reads what String gives.
func ParseStored(text string) (s Stored, err error) {
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
	*s, err = ParseStored(string(text))
	return err
}

// Repositories is the answer: one for each of the configuration, in its order.
type Repositories struct {
	Repositories []Repository `json:"repositories"`
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
