package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// unableError says that something could not be tried, which says nothing about
// the image.
type unableError struct{ err error }

func (e *unableError) Error() string { return e.err.Error() }
func (e *unableError) Unwrap() error { return e.err }

func unable(format string, args ...any) error {
	return &unableError{fmt.Errorf(format, args...)}
}

// faultError says that the image made the drill impossible.
type faultError struct{ finding report.Finding }

func (e *faultError) Error() string { return e.finding.String() }

func fault(kind report.Kind, where, format string, args ...any) error {
	return &faultError{report.Finding{Kind: kind, Where: where, Text: fmt.Sprintf(format, args...)}}
}

// conclude turns what ended the drill, nil if nothing did, and what it found
// into the check's status. It returns an error only where there is no result.
func (d *drill) conclude(ctx context.Context, err error) error {
	var (
		damaged *snapshot.DamagedError
		broken  *faultError
	)
	switch {
	case errors.As(err, &broken):
		d.findings.add(broken.finding)
	case errors.As(err, &damaged):
		d.findings.add(report.Finding{Kind: report.KindBoot, Text: "no cluster can be built from it: " + damaged.Error()})
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("drill of %s: %w", d.options.Object, context.Cause(ctx))
	}
	d.check.Findings = d.findings.all()
	switch {
	case len(d.check.Findings) > 0:
		d.check.Status = report.Damaged
	case err != nil:
		d.check.Status, d.check.Reason = report.Unchecked, "the drill could not be done: "+err.Error()
	default:
		d.check.Status = report.Passed
	}
	return nil
}

// findings are collected by checks that run at the same time.
type findings struct {
	mu   sync.Mutex
	list []report.Finding
	more int
}

func (f *findings) add(finding report.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) == maxFindings {
		f.more++
		return
	}
	f.list = append(f.list, finding)
}

// serve adds a finding about what is served.
func (f *findings) serve(where, format string, args ...any) {
	f.add(report.Finding{Kind: report.KindServe, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (f *findings) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.list) > 0
}

func (f *findings) all() []report.Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.Clone(f.list)
	if f.more > 0 {
		list = append(list, report.Finding{Kind: report.KindServe, Text: fmt.Sprintf("and %d more of the kinds above", f.more)})
	}
	return list
}
