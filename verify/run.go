// Package verify proves that what was stored can be restored: a repository, a
// snapshot file, or a member's data directory. The level checksum is here, structure
// in package structure, replay in replaying, and drill in serve.
//
// It promises:
//
//  1. A level says what was compared with what, and includes the levels before it.
//     What was not looked at is not called proved: it is Unchecked, with the
//     reason.
//  2. All faults are listed, not only the first.
//  3. It only reads what it verifies. Files of a data directory are opened
//     read-only, and not at all locked against a member that runs.
//  4. Memory is flat: snapshots are streamed, and a log's segments read a few at
//     a time.
//  5. What it writes to its scratch folder is removed, however it ends; what a
//     killed run left, by the next.
//
// and is owed in return: sinks that stay open meanwhile.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// run is one verification under way.
type run struct {
	Request
	report *report.Report
}

// check does one check: do fills in what was compared and found, and sets the
// reason where it could not be done. Its error ends the whole verification; what
// only keeps this check from being done does not belong there: see unchecked. Of
// errPruned there is a note, and neither a check nor an error.
func (r *run) check(ctx context.Context, level report.Level, object string, do func(*report.Check) error) (*report.Check, error) {
	c := report.Check{Level: level, Object: object}
	began := time.Now()
	err := do(&c)
	c.Took = time.Since(began)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, errPruned) {
		r.note("%s was pruned meanwhile, and not looked at", object)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.add(c), nil
}

// failed files why something could not be looked at; its own error is the end of
// ctx. All that was found before stays in the report.
func (r *run) failed(ctx context.Context, object string, err error) error {
	if ctx.Err() == nil && err == nil {
		return nil
	}
	return r.took(ctx, report.Checksum, object, report.Check{}, err)
}

// took adds the check of a part of verify. Its error is why it could not be done,
// unless ctx has ended.
func (r *run) took(ctx context.Context, level report.Level, object string, c report.Check, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.Object == "" {
		c = report.Check{Level: level, Object: object}
	}
	if err != nil {
		unchecked(&c, err)
	}
	r.add(c)
	return nil
}

// add takes a check into the report, with its status.
func (r *run) add(c report.Check) *report.Check {
	c.Conclude()
	r.report.Checks = append(r.report.Checks, c)
	return &r.report.Checks[len(r.report.Checks)-1]
}

// note adds a sentence for the user, once.
func (r *run) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, n := range r.report.Notes {
		if n == text {
			return
		}
	}
	r.report.Notes = append(r.report.Notes, text)
}

// took files an error under what it says: damage is a finding of kind, an object
// that is gone is missing, and all else is why the check could not be done.
func took(c *report.Check, kind report.Kind, object string, err error) {
	if err == nil {
		return
	}
	var damaged *snapshot.DamagedError
	var corrupt *codec.CorruptError
	f := report.Finding{Kind: kind, Object: object}
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		f.Kind, f.Text = report.KindMissing, "it is gone"
	case errors.As(err, &damaged):
		f.Where, f.Text = report.AtByte(damaged.Offset), damaged.Err.Error()
	case errors.As(err, &corrupt):
		f.Where, f.Text = report.AtByte(corrupt.Offset), corrupt.Err.Error()
	default:
		unchecked(c, err)
		return
	}
	found(c, f)
}

// found adds a finding, which makes the check one of damage; its own object need not be
// named again.
func found(c *report.Check, f report.Finding) {
	f.Text = withoutObject(f.Text, cmp.Or(f.Object, c.Object))
	if f.Object == c.Object {
		f.Object = ""
	}
	c.Findings = append(c.Findings, f)
	c.Conclude()
}

// withoutObject is an error's text without the name of the object, and of its
// repository, that it begins with: the finding names it.
func withoutObject(text, object string) string {
	rest, ok := strings.CutPrefix(text, object)
	if !ok || object == "" || !strings.HasPrefix(rest, ": ") && !strings.HasPrefix(rest, " in ") {
		return text
	}
	if _, after, ok := strings.Cut(rest, ": "); ok {
		return after
	}
	return text
}

// unchecked says why a check could not be done, or not all of it.
func unchecked(c *report.Check, err error) {
	var identity *codec.IdentityError
	text := err.Error()
	switch {
	case errors.As(err, &identity):
		text = identity.Error() // says what to give
	case errors.Is(err, snapshot.ErrNewerFormat):
		text += ": verify it with the version that wrote it"
	}
	if c.Reason != "" {
		text = c.Reason + "; " + text
	}
	c.Reason = text
	c.Conclude()
}

// noteNextStep says what to do about damage outside of a repository.
func (r *run) noteNextStep(instead string) {
	if r.report.Status() == report.Damaged {
		r.note("next step: %s; take a new full backup (requorum backup)", instead)
	}
}

// finish ends the report.
func (r *run) finish() *report.Report {
	r.report.Finished = time.Now().UTC()
	return r.report
}

// What Request.Backup can be, beside an ID or the first characters of one.
const (
	// Latest is the newest backup and the log after it.
	Latest = snapshot.Latest
	// All is everything that the repository holds.
	All = "all"
)

// Request says what to prove, and how far. The zero value proves the structure
// of the newest backup and the bytes of the log after it.
type Request struct {
	Backup   string // an ID, the first characters of one, Latest (also empty), or All
	Timeline string // where to look; empty for anywhere
	Level    report.Level

	// Identities open encrypted objects. Without one that fits, their stored bytes
	// are compared, and what is above is Unchecked.
	Identities []age.Identity
	// ScratchDir is where databases are unpacked; the system's folder for
	// temporary files where empty.
	ScratchDir string
	// Engine replays logs; walreplay.DefaultEngine where empty.
	Engine walreplay.ReplayEngine

	Tool string // such as "requorum 1.2.3"
	// Progress may be nil. It is called by one goroutine at a time.
	Progress func(phase string, done, total int64)
	Logger   *slog.Logger // may be nil
}

// withDefaults fills in what was left open, and refuses what cannot be.
func (r Request) withDefaults() (Request, error) {
	if r.Backup == "" {
		r.Backup = Latest
	}
	if r.Level == "" {
		r.Level = report.Structure
	}
	if _, err := report.ParseLevel(string(r.Level)); err != nil {
		return r, err
	}
	if r.ScratchDir == "" {
		r.ScratchDir = os.TempDir()
	}
	if r.Progress == nil {
		r.Progress = func(string, int64, int64) {}
	}
	return r, nil
}

// newReport begins the report on a target.
func (r Request) newReport(target string) *report.Report {
	return &report.Report{Target: target, Level: r.Level, Tool: r.Tool, Started: time.Now().UTC(), Checks: []report.Check{}}
}
