package replaying

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// uncheckedError is why a check cannot be done.
type uncheckedError struct{ reason string }

func (e *uncheckedError) Error() string { return e.reason }

func unchecked(format string, args ...any) error {
	return &uncheckedError{fmt.Sprintf(format, args...)}
}

// settle makes a finding or a reason of an error that says something about the
// backup, the log, or what this run was given, and returns any other.
func (k *checking) settle(err error) error {
	var (
		reason   *uncheckedError
		identity *codec.IdentityError
		missing  *segment.MissingError
		none     *walreplay.NotCoveredError
		fork     *segment.ForkError
		damaged  *snapshot.DamagedError
		entry    *engine.EntryError
		order    *engine.OrderError
	)
	switch {
	case errors.As(err, &reason):
		k.Reason = reason.reason
	case errors.Is(err, walreplay.ErrNoSpace), errors.Is(err, syscall.ENOSPC),
		errors.As(err, &identity), errors.Is(err, snapshot.ErrNewerFormat), errors.Is(err, engine.ErrNewer), errors.Is(err, walfile.ErrNewer):
		k.Reason = err.Error()
	case errors.As(err, &fork):
		k.found(report.KindFork, fmt.Sprintf("%s/log", fork.Timeline), fmt.Sprintf("index %d", fork.Index), "%v", fork)
	case errors.As(err, &entry):
		k.found(report.KindApply, "", fmt.Sprintf("index %d", entry.Index), "the log cannot be applied there: %v", entry)
	case errors.As(err, &order):
		k.found(report.KindApply, "", fmt.Sprintf("index %d", order.Index), "%v", order)
	case errors.As(err, &damaged):
		k.found(k.kindOf(err), damaged.Object, whereOf(damaged), "%v", damaged.Err)
	case errors.As(err, &missing):
		k.Reason = fmt.Sprintf("entries %d to %d are missing in the archived log: what they did cannot be replayed. A backup that is taken after the gap can be proved from the next one on", missing.First, missing.Last)
	case errors.As(err, &none), errors.Is(err, snapshot.ErrNoBackup), errors.Is(err, walfile.ErrNoLog):
		k.Reason = err.Error()
	default:
		return err
	}
	return nil
}

// kindOf is where damage is: in the log, or in the object itself.
func (k *checking) kindOf(err error) report.Kind {
	var log *walreplay.LogError
	switch {
	case !errors.As(err, &log) && k.member:
		return report.KindPage
	case !errors.As(err, &log):
		return report.KindObject
	case k.member:
		return report.KindLogCorrupt
	}
	return report.KindSegment
}

func whereOf(d *snapshot.DamagedError) string {
	if d.Offset < 0 {
		return ""
	}
	return fmt.Sprintf("byte %d", d.Offset)
}
