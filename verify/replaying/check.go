// Package replaying proves a full snapshot from the one before it and the raft
// log between them: the log is replayed onto that one, up to the snapshot's raft
// index, and the two databases are compared: HashKV, and every other bucket. A row of snapshots
// with the log between them thereby proves itself, without the cluster.
//
// It promises:
//
//  1. What is begun from is never the snapshot itself, and the log is really
//     replayed, where there is a snapshot before it. What was compared with what
//     is said in the check.
//  2. A difference names the first key and revision that differ. Which of the
//     three is wrong (the snapshot, the one before it, the log), the two
//     databases cannot show; where the HashKV that a live member served for the
//     snapshot can, the check says so.
//  3. What cannot be proved is Unchecked, with the reason and the next step: no
//     snapshot before it, entries that are missing, an identity, space. It is
//     never taken for damage, nor for proof.
//  4. Sources are only read. What is written goes to scratch folders, which are
//     removed at the end, or by the next run in the same place.
//
// What passing does not prove: an altered entry whose keys were all overwritten
// or deleted, and compacted, before the snapshot leaves no trace in the state at
// the end. The states in between that the log would give are then proved only by the
// chain of the log. The check says up to which revision that is so.
package replaying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Options are how a replay is done.
type Options struct {
	// ScratchDir is where scratch folders are made.
	ScratchDir string
	// Engine applies the log; walreplay.DefaultEngine where empty.
	Engine walreplay.ReplayEngine
	// Identities are for encrypted backups and logs.
	Identities []age.Identity
	// Unpacked are snapshots of the timeline by their ID that the caller has
	// unpacked and compared with their sums: what Check is to prove, and others, which are
	// not fetched again then.
	Unpacked map[string]*snapshot.File
	// Progress may be nil. It is called from one goroutine: the phases are those of walreplay,
	// and "compare", uncounted.
	Progress func(phase string, done, total int64)
	Logger   *slog.Logger // may be nil
}

func (o Options) progress(phase string, done, total int64) {
	if o.Progress != nil {
		o.Progress(phase, done, total)
	}
}

// walreplay replays by the rules of the etcd of a version; empty: of the one that the base
// was read from.
func (o Options) walreplay(version string) walreplay.Options {
	return walreplay.Options{
		CheckBase: CheckBase, Engine: o.Engine,
		ScratchDir: o.ScratchDir, SourceSettings: engine.SourceSettings{SourceVersion: version},
		Progress: func(p walreplay.Phase, done, total int64) { o.progress(string(p), done, total) },
		Logger:   o.Logger,
	}
}

// unpacked is the same base, read from the caller's copy where there is one.
func (o Options) unpacked(b *walreplay.Base) *walreplay.Base {
	f := o.Unpacked[b.ID]
	if f == nil || b.Image == nil {
		return b
	}
	local := *b
	local.Image = f
	return &local
}

// ObjectOf is how a check calls a backup.
func ObjectOf(m *snapshot.Manifest) string { return fmt.Sprintf("%s/full/%s", m.Timeline, m.ID) }

// Check replays the log from the full snapshot before m to m's raft index, and
// compares the two databases. What it finds is in the check. Others are of
// snapshots that are known to be wrong now, though m is proved: of the one before
// it, where an older one gives m. The error is a failure of a repository or of the
// scratch folder, or ctx's.
func Check(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, m *snapshot.Manifest, o Options) (check report.Check, others []report.Check, err error) {
	k := newChecking(ObjectOf(m), o)
	k.err = k.backup(ctx, repo, c, m)
	check, err = k.end(ctx)
	return check, k.others, err
}

// checking is one check under way.
type checking struct {
	report.Check
	o        Options
	began    time.Time
	compared []string
	member   bool            // it is of a member's data directory
	other    *walreplay.Base // what it was begun from, where that is in doubt
	others   []report.Check
	err      error
}

func newChecking(object string, o Options) *checking {
	return &checking{Check: report.Check{Level: report.Replay, Object: object}, o: o, began: time.Now()}
}

// end makes the check out of what was found.
func (k *checking) end(ctx context.Context) (report.Check, error) {
	err := k.err
	if ctx.Err() != nil {
		return report.Check{}, context.Cause(ctx)
	}
	if err != nil {
		if err = k.settle(err); err != nil {
			return report.Check{}, fmt.Errorf("check %s by a replay: %w", k.Object, err)
		}
	}
	if len(k.Findings) > 0 {
		k.Reason, k.NotYet = "", false
	}
	k.Conclude()
	k.Compared = strings.Join(k.compared, ". ")
	k.Took = time.Since(k.began)
	return k.Check, nil
}

// fork is a copy that goes its own way.
func (k *checking) fork() checking {
	c := *k
	c.compared, c.Findings, c.Phases = slices.Clone(k.compared), slices.Clone(k.Findings), slices.Clone(k.Phases)
	return c
}

func (k *checking) found(kind report.Kind, object, where, format string, args ...any) {
	k.Findings = append(k.Findings, report.Finding{Kind: kind, Object: object, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (k *checking) say(format string, args ...any) {
	k.compared = append(k.compared, fmt.Sprintf(format, args...))
}

// phase measures a part.
func (k *checking) phase(name string, began time.Time) { k.phaseTook(name, time.Since(began)) }

func (k *checking) phaseTook(name string, took time.Duration) {
	k.Phases = append(k.Phases, report.Phase{Name: name, Took: took})
}

// databaseOf is the database that a replay gave.
func databaseOf(name string, r *walreplay.Rebuilt) (Database, error) {
	f, err := snapshot.OpenUnsynced(r.Path())
	return Database{name, f}, err
}

// uncheckedError is why a check cannot be done.
type uncheckedError struct {
	reason string
	notYet bool // there is nothing to compare with yet
}

func (e *uncheckedError) Error() string { return e.reason }

func unchecked(format string, args ...any) error {
	return &uncheckedError{reason: fmt.Sprintf(format, args...)}
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
		k.Reason, k.NotYet = reason.reason, reason.notYet
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
		k.found(k.kindOf(err), damaged.Object, report.AtByte(damaged.Offset), "%v", damaged.Err)
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

// CheckBase refuses a database that etcd cannot have written: its store ends the
// process over some of these, or waits without end, and a verification has to
// report them.
func CheckBase(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	result, err := structure.Check(ctx, r, size, structure.Options{MaxFindings: 1})
	if err != nil || len(result.Findings) == 0 {
		return err
	}
	return &snapshot.DamagedError{Object: name, Offset: -1, Err: fmt.Errorf("%w: %s", errUnsound, result.Findings[0])}
}

var errUnsound = errors.New("its structure is damaged")

// unsound is why a replay from a database that is not sound cannot be done: the
// fault itself is the structure level's.
func unsound(err error) error {
	var log *walreplay.LogError
	if errors.Is(err, errUnsound) && !errors.As(err, &log) {
		return unchecked("%v: see the level structure", err)
	}
	return err
}
