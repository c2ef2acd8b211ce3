package rescue

import (
	"context"
	"time"
)

// Phase is a part of a recovery. The texts are stable.
type Phase string

// The phases, in their order.
const (
	PhaseLook      Phase = "look"      // each host's state, and whether a quorum serves
	PhaseSurvey    Phase = "survey"    // what stopped members and repositories hold
	PhaseTakeOver  Phase = "take-over" // what a run elsewhere had set aside is put back
	PhaseQuiesce   Phase = "quiesce"   // clients are stopped
	PhaseFence     Phase = "fence"     // old members are stopped
	PhaseSetAside  Phase = "set-aside"
	PhaseRebuild   Phase = "rebuild"
	PhaseLineage   Phase = "lineage" // the new timeline is opened
	PhaseFlags     Phase = "flags"   // etcd's flags are brought in line, where asked for
	PhaseStart     Phase = "start"
	PhaseProve     Phase = "prove"
	PhaseResume    Phase = "resume"    // clients are started
	PhaseSupersede Phase = "supersede" // the old timelines end
	PhaseSnapshot  Phase = "snapshot"
)

// The phases of an undo, and of a recovery that was declined.
const (
	PhaseUndoQuiesce Phase = "undo-quiesce"
	PhaseUndoStop    Phase = "undo-stop"
	PhasePutBack     Phase = "put-back"
	PhaseReinstate   Phase = "reinstate" // the old timeline lives again
	PhaseUndoStart   Phase = "undo-start"
	PhaseUndoResume  Phase = "undo-resume"
)

// Phases are those of a recovery, in their order.
func Phases() []Phase {
	return []Phase{PhaseLook, PhaseSurvey, PhaseTakeOver, PhaseQuiesce, PhaseFence, PhaseSetAside, PhaseRebuild, PhaseLineage, PhaseFlags, PhaseStart, PhaseProve, PhaseResume, PhaseSupersede, PhaseSnapshot}
}

// Events is told what goes on. Its methods are called from one goroutine at a time.
type Events interface {
	// Begin and End frame a phase, on a host (the member's name) or, where host is
	// empty, as a whole; detail says in a few words what came out. A phase that the
	// journal knows as done is not told again.
	Begin(phase Phase, host string)
	End(phase Phase, host, detail string, took time.Duration, err error)
	// Progress counts what is done of a phase, in bytes or entries; total is 0 where
	// it is not known. what is such as "read the logs".
	Progress(phase Phase, host, what string, done, total int64)
	// Waiting says what is waited for, now and then.
	Waiting(phase Phase, text string)
	// Note is a sentence for the operator.
	Note(text string)
	// Warn is one that must not be overlooked.
	Warn(text string)
	// Confirm asks. An error ends the run as a no does, and is returned.
	Confirm(ctx context.Context, q Question) (bool, error)
}

// QuestionKind is what is asked.
type QuestionKind string

// The kinds of questions.
const (
	// AskBegin comes before anything is changed.
	AskBegin QuestionKind = "begin"
	// AskChanged comes where the plan turned out worse than what was confirmed.
	AskChanged QuestionKind = "changed"
	// AskUndo comes before an undo.
	AskUndo QuestionKind = "undo"
)

// Question is one for the operator.
type Question struct {
	Kind QuestionKind
	// Text is the question, in a sentence; Reasons what has to be known for it.
	Text    string
	Reasons []string
	// Type is what has to be typed, the cluster's name; empty where yes will do.
	Type string
	// Prospect is what would be done; nil with AskUndo.
	Prospect *Prospect
}
