package walreplay

import (
	"fmt"
	"strings"

	"github.com/requorum/requorum/snapshot"
)

// NotCoveredError says that there is no recoverable point at a target. It is a
// snapshot.ErrNoBackup to errors.Is: there is nothing to restore.
type NotCoveredError struct {
	Target  Target
	History string // where it was looked for
	Reason  string
	// Before and After are the nearest recoverable points; nil where there is
	// none on that side.
	Before, After *Near
}

// Near is a recoverable point near a target.
type Near struct {
	Index    uint64
	Revision int64  // 0 where it is not known
	AtLeast  bool   // Revision is a lower bound
	Time     string // empty where it is not known
	Backup   string // the full snapshot that is exactly there; empty for one in the log
}

func (n Near) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "raft index %d", n.Index)
	switch {
	case n.Revision > 0 && n.AtLeast:
		fmt.Fprintf(&b, ", revision at least %d", n.Revision)
	case n.Revision > 0:
		fmt.Fprintf(&b, ", revision %d", n.Revision)
	}
	if n.Time != "" {
		fmt.Fprintf(&b, ", %s", n.Time)
	}
	if n.Backup != "" {
		fmt.Fprintf(&b, " (%s)", n.Backup)
	}
	return b.String()
}

func (e *NotCoveredError) Error() string {
	text := fmt.Sprintf("%s cannot be restored from %s: %s", e.Target, e.History, e.Reason)
	switch {
	case e.Before != nil && e.After != nil:
		text += fmt.Sprintf("; the nearest recoverable points are %s before it, and %s after it", e.Before, e.After)
	case e.Before != nil:
		text += fmt.Sprintf("; the nearest recoverable point is %s, before it", e.Before)
	case e.After != nil:
		text += fmt.Sprintf("; the nearest recoverable point is %s, after it", e.After)
	}
	return text
}

// Is makes it one of "nothing to restore".
func (e *NotCoveredError) Is(target error) bool { return target == snapshot.ErrNoBackup }

// LogError says that the log could not be replayed on from a good point: it is
// damaged there, or holds what cannot be applied. Err is the reason.
type LogError struct {
	Good Near // the last point before it
	Err  error
}

func (e *LogError) Error() string {
	return fmt.Sprintf("%v; the last good point before it is %s: --index %d restores up to there", e.Err, e.Good, e.Good.Index)
}

func (e *LogError) Unwrap() error { return e.Err }

// OtherStateError says that a recipe gave another state than it did before.
type OtherStateError struct {
	What      string // that differs
	Got, Want any
}

func (e *OtherStateError) Error() string {
	return fmt.Sprintf("the replay came to another state than the plan's: %s is %v, not %v: the log or the snapshot that it reads here is not the one that the plan was made from", e.What, e.Got, e.Want)
}
