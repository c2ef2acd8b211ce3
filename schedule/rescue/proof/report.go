package proof

import (
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// Report is what was proved of a cluster, and what was not.
type Report struct {
	ClusterID snapshot.ID `json:"cluster_id"`
	// Quorum and All are how long it took from the start of the wait until a quorum
	// served, and all members; All is 0 where not all did.
	Quorum  time.Duration  `json:"quorum_nanoseconds"`
	All     time.Duration  `json:"all_nanoseconds,omitempty"`
	Took    time.Duration  `json:"took_nanoseconds"`
	Members []MemberReport `json:"members"`
	// Missing are members that were not up when the wait was over.
	Missing []Missing `json:"missing,omitempty"`
	// Revision is the one at which the members' hashes were compared.
	Revision int64 `json:"revision"`
	// HashKV is what all members agreed on there.
	HashKV snapshot.HashKV `json:"hash_kv"`
	// Proved and Unproved say in sentences what was looked at, and what could not be
	// with the reason; Wrong is what was found to be other than it has to be.
	Proved   []string `json:"proved"`
	Unproved []string `json:"unproved,omitempty"`
	Wrong    []string `json:"wrong,omitempty"`
}

// MemberReport is one member that served.
type MemberReport struct {
	Name     string          `json:"name"`
	ID       snapshot.ID     `json:"id"`
	Endpoint string          `json:"endpoint"`
	Version  string          `json:"version"`
	Learner  bool            `json:"learner,omitempty"`
	After    time.Duration   `json:"after_nanoseconds"` // it served that long after the start of the wait
	HashKV   snapshot.HashKV `json:"hash_kv,omitzero"`
}

// Complete tells whether all members served and everything was looked at.
func (r *Report) Complete() bool { return len(r.Missing)+len(r.Unproved)+len(r.Wrong) == 0 }

// NoQuorumError says that no quorum served in time.
type NoQuorumError struct {
	Waited  time.Duration
	Missing []Missing
	Err     error // the last reason
}

func (e *NoQuorumError) Error() string {
	var why []string
	for _, m := range e.Missing {
		why = append(why, m.Name+": "+m.Why)
	}
	if len(why) == 0 {
		why = append(why, fmt.Sprint(e.Err))
	}
	return fmt.Sprintf("no quorum of the new cluster serves after %s: %s", e.Waited.Round(time.Second), strings.Join(why, "; "))
}

func (e *NoQuorumError) Unwrap() error { return e.Err }

// WrongError says that the cluster serves, and is or holds something else than it
// has to: clients must not be let on it.
type WrongError struct{ Wrong []string }

func (e *WrongError) Error() string {
	return "the new cluster serves, and is not what was rebuilt: " + strings.Join(e.Wrong, "; ") + ": do not let clients on it"
}
