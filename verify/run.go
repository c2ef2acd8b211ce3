package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// run is one verification under way.
type run struct {
	Request
	report *report.Report
}

// check does one check: do fills in what was compared and found, and sets the
// reason where it could not be done. Its error ends the whole verification; what
// only keeps this check from being done does not belong there: see unchecked.
func (r *run) check(ctx context.Context, rung report.Rung, object string, do func(*report.Check) error) (*report.Check, error) {
	c := report.Check{Rung: rung, Object: object}
	began := time.Now()
	err := do(&c)
	c.Took = time.Since(began)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r.add(c), nil
}

// failed files why something could not be looked at; its own error is the end of
// ctx. All that was found before stays in the report.
func (r *run) failed(ctx context.Context, object string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c := report.Check{Rung: report.Checksum, Object: object}
		unchecked(&c, err)
		r.add(c)
	}
	return nil
}

// add takes a check into the report, with its status.
func (r *run) add(c report.Check) *report.Check {
	switch {
	case len(c.Findings) > 0:
		c.Status = report.Damaged
	case c.Reason != "":
		c.Status = report.Unchecked
	default:
		c.Status = report.Passed
	}
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
		f.Where, f.Text = byteOf(damaged.Offset), damaged.Err.Error()
	case errors.As(err, &corrupt):
		f.Where, f.Text = byteOf(corrupt.Offset), corrupt.Err.Error()
	default:
		unchecked(c, err)
		return
	}
	found(c, f)
}

// found adds a finding; the check's own object need not be named again.
func found(c *report.Check, f report.Finding) {
	f.Text = withoutObject(f.Text, cmp.Or(f.Object, c.Object))
	if f.Object == c.Object {
		f.Object = ""
	}
	c.Findings = append(c.Findings, f)
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
}

func byteOf(offset int64) string {
	if offset < 0 {
		return ""
	}
	return fmt.Sprintf("byte %d", offset)
}

// finish ends the report.
func (r *run) finish() *report.Report {
	r.report.Finished = r.Now().UTC()
	return r.report
}
