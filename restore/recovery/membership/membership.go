// Package membership follows who the members of a cluster are along its raft log:
// from what a database says, through the membership changes after it.
package membership

import (
	"cmp"
	"slices"

	"github.com/requorum/requorum/snapshot"
)

// State is the members at an index of the log. Its JSON form is stable.
type State struct {
	// Index is that of the last entry which changed it, or of the database that
	// it was read from.
	Index uint64 `json:"index"`
	// Members are voters and learners, by ID.
	Members []snapshot.Member `json:"members"`
	// Removed are those that left while the log was followed, by ID. A database
	// tells of no others.
	Removed []snapshot.Member `json:"removed,omitempty"`
	// Outgoing are the voters of the membership that is being left, where the
	// change is a joint one: a majority of both is needed then.
	Outgoing []snapshot.ID `json:"outgoing,omitempty"`
}

// Of is what a database says of the members.
func Of(f snapshot.Facts) State {
	s := State{Index: f.RaftIndex, Members: slices.Clone(f.Members)}
	s.sort()
	return s
}

// Known tells whether any member is.
func (s State) Known() bool { return len(s.Members) > 0 }

// Clone shares nothing that Apply changes.
func (s State) Clone() State {
	s.Members, s.Removed, s.Outgoing = slices.Clone(s.Members), slices.Clone(s.Removed), slices.Clone(s.Outgoing)
	return s
}

// Find is the member with an ID, nil where there is none.
func (s State) Find(id snapshot.ID) *snapshot.Member {
	for i := range s.Members {
		if s.Members[i].ID == id {
			return &s.Members[i]
		}
	}
	return nil
}

// Left is a member that was removed while the log was followed.
func (s State) Left(id snapshot.ID) *snapshot.Member {
	for i := range s.Removed {
		if s.Removed[i].ID == id {
			return &s.Removed[i]
		}
	}
	return nil
}

// Voters are those who vote, by ID.
func (s State) Voters() []snapshot.ID {
	var ids []snapshot.ID
	for _, m := range s.Members {
		if !m.IsLearner {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Quorums are the sets of voters of which a majority each has to agree: one, or
// in a joint membership two.
func (s State) Quorums() [][]snapshot.ID {
	all := [][]snapshot.ID{s.Voters()}
	if len(s.Outgoing) > 0 {
		all = append(all, s.Outgoing)
	}
	return all
}

// Majority is how many of so many voters have to agree.
func Majority(voters int) int { return voters/2 + 1 }

// Name calls a member by its name, or by its ID where it never told its name.
func Name(m snapshot.Member) string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID.String()
}

func (s *State) sort() {
	byID := func(a, b snapshot.Member) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(s.Members, byID)
	slices.SortFunc(s.Removed, byID)
}
