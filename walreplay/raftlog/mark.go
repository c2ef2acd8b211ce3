package raftlog

import "time"

// Mark is a live observation: at Time, by the clock of the host that asked, a
// member said that it had applied Index. It is what `--at` goes by.
type Mark struct {
	Index  uint64    `json:"index"`
	Term   uint64    `json:"term"` // of the entry at Index
	Time   time.Time `json:"time"`
	Member uint64    `json:"member"` // the member that was asked
	// Revision stood in the same answer. The state at Index may be a little
	// before it or behind it, since a member goes on while it answers.
	Revision int64 `json:"revision"`
}
