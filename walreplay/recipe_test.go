package walreplay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Promise 5: a replay that comes to another state than its plan's is refused, by whatever differs.
func TestPromise5RecipeOfAnotherState(t *testing.T) {
	recipe := func(change func(*Recipe)) *Recipe {
		r := &Recipe{Index: 90, Term: 3, Entries: 80, Revision: 310, Chain: &raftlog.Sum{1}, HashKV: snapshot.HashKV{Hash: 5, CompactedRevision: 7}}
		change(r)
		return r
	}
	plan := recipe(func(*Recipe) {})
	for what, change := range map[string]func(*Recipe){
		"the raft index":                 func(r *Recipe) { r.Index++ },
		"the raft term":                  func(r *Recipe) { r.Term++ },
		"the number of replayed entries": func(r *Recipe) { r.Entries++ },
		"the revision":                   func(r *Recipe) { r.Revision++ },
		"HashKV":                         func(r *Recipe) { r.HashKV.Hash++ },
		"the compacted revision":         func(r *Recipe) { r.HashKV.CompactedRevision++ },
	} {
		require.ErrorContains(t, recipe(change).Check(plan), "another state than the plan's: "+what+" is", what)
	}
	require.NoError(t, plan.Check(plan))
	require.NoError(t, recipe(func(r *Recipe) { r.Chain = &raftlog.Sum{2} }).Check(plan), "a copy of the log whose chain began elsewhere")
}
