package rescue

import (
	"context"
	"maps"
	"slices"
)

// Look finds out what is there and what would be done, and changes nothing. The
// prospect comes with an error too, as far as it got, where histories have to be
// chosen from (*recovery.NeedSourceError), nothing can be rebuilt
// (*recovery.NothingError), or a source cannot be used (*recovery.SourceError).
// What would stop Run otherwise is in Prospect.Obstacles.
func Look(ctx context.Context, req Request) (*Prospect, error) {
	return look(ctx, req)
}

// Run recovers the cluster: it begins a run, or goes on with the one that is under
// way. A report comes with an error too once the new cluster is proved: what failed
// after that wraps snapshot.ErrIncomplete.
//
// Errors to tell apart: *QuorumError, *ObstacleError, *ManualError, *HeldError,
// *ContradictionError, *FenceError, *UndoneError, *HostsError, *DifferError,
// ErrDeclined, *proof.NoQuorumError, *proof.WrongError, and those of Look.
func Run(ctx context.Context, req Request) (*Report, error) {
	return run(ctx, req)
}

// Undo puts back what the run under way, or the last one that finished, set aside,
// starts the old members, and lets the clients on them. It asks first. A report
// comes with an error that wraps snapshot.ErrIncomplete where repositories could
// not be told.
//
// Errors to tell apart: ErrNothingToUndo, ErrDeclined, *HostsError, *HeldError.
func Undo(ctx context.Context, req Request) (*UndoReport, error) {
	return undo(ctx, req)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
