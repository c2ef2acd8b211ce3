package rescue

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to tell apart.
var (
	// ErrDeclined says that the operator said no. What had been stopped for the
	// question is started again.
	ErrDeclined = errors.New("it was not confirmed")
	// ErrNothingToUndo says that no run is known that could be undone.
	ErrNothingToUndo = errors.New("there is nothing to undo")
)

// QuorumError says that the cluster serves, so that nothing is to be recovered.
type QuorumError struct {
	Quorum Quorum
	// Next are the commands to replace a single member.
	Next []string
}

func (e *QuorumError) Error() string {
	if !e.Quorum.Serves {
		return fmt.Sprintf("whether the cluster serves cannot be told: %s. Recover with --force only if you know that it does not", e.Quorum.Unknown)
	}
	return fmt.Sprintf("the cluster serves (member %s answered a linearizable read): its quorum is not lost, and nothing was changed. To replace a single member:\n  %s",
		e.Quorum.By, strings.Join(e.Next, "\n  "))
}

// ObstacleError says why a recovery cannot be begun. Nothing was changed.
type ObstacleError struct {
	Obstacles []string
	// Unnamed says that naming members would end all of them: those that are dead, or
	// those of the new cluster.
	Unnamed bool
}

func (e *ObstacleError) Error() string {
	return "nothing was changed: " + strings.Join(e.Obstacles, "\n")
}

// ManualError says that members are of a kind that is not written to, and how they
// are recovered by hand. Nothing was changed.
type ManualError struct {
	Members []string
	Steps   []string
}

func (e *ManualError) Error() string {
	return fmt.Sprintf("members %s are recovered by hand; nothing was changed:\n  %s", strings.Join(e.Members, ", "), strings.Join(e.Steps, "\n  "))
}

// FenceError says that too many old members could come back. The run goes on once
// they are stopped, or declared dead.
type FenceError struct {
	Run string
	Why string
}

func (e *FenceError) Error() string {
	return fmt.Sprintf("run %s does not go on: %s", e.Run, e.Why)
}

// ContradictionError says that a run is under way that was decided otherwise.
type ContradictionError struct {
	Run string
	// Options are sentences, each about one that contradicts.
	Options []string
}

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("run %s is under way, and was decided otherwise: %s. Go on with it as it was decided, or take it back with --undo first", e.Run, strings.Join(e.Options, "; "))
}

// HeldError says that a run of a driver elsewhere has hosts.
type HeldError struct {
	Holder string
	Hosts  []string
	// Serves says that the cluster does, so that only clients may be waiting.
	Serves bool
}

func (e *HeldError) Error() string {
	if e.Serves {
		return fmt.Sprintf("the cluster serves, and run %s, begun elsewhere, still has %s, so that clients there may be stopped: go on with it where it was begun, or, if that machine is lost, complete it from here with --take-over", e.Holder, strings.Join(e.Hosts, ", "))
	}
	return fmt.Sprintf("run %s, begun elsewhere, has %s: go on with it where it was begun, or, if it will not go on, take over with --take-over", e.Holder, strings.Join(e.Hosts, ", "))
}

// CredentialsError says that the operator's certificate, key or CA cannot be used.
type CredentialsError struct {
	Key  string // of the cluster file
	File string // that
	Err  error
}

func (e *CredentialsError) Error() string { return fmt.Sprintf("%s: %s: %v", e.File, e.Key, e.Err) }
func (e *CredentialsError) Unwrap() error { return e.Err }

// UndoneError says that a run is being undone, so that it cannot go on.
type UndoneError struct{ Run string }

func (e *UndoneError) Error() string {
	return fmt.Sprintf("run %s is being undone: finish that with --undo first", e.Run)
}

// HostsError says on which hosts a phase failed. The same command goes on with it.
type HostsError struct {
	Phase Phase
	// Errs are by the member's name.
	Errs map[string]error
}

func (e *HostsError) Error() string {
	var all []string
	for _, name := range sortedKeys(e.Errs) {
		all = append(all, fmt.Sprintf("%s: %v", name, e.Errs[name]))
	}
	next := "Run the same command again to go on, or --undo to put everything back"
	if e.Phase == PhaseLook || e.Phase == PhaseSurvey {
		next = "Run the same command again once that is mended"
	}
	return fmt.Sprintf("%s failed: %s. %s", e.Phase, strings.Join(all, "; "), next)
}

func (e *HostsError) Unwrap() []error {
	var all []error
	for _, name := range sortedKeys(e.Errs) {
		all = append(all, e.Errs[name])
	}
	return all
}
