package main

import (
	"fmt"
	"io"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// verifyReport is the JSON form of `requorum verify`.
type verifyReport struct {
	Status report.Status `json:"status"`
	*report.Report
	// Verdict is where the result was written; nil where none was asked for.
	Verdict *verdictReport `json:"verdict,omitempty"`
}

type verdictReport struct {
	Sequence uint64 `json:"sequence,omitempty"`
	Signed   bool   `json:"signed"`
	Error    string `json:"error,omitempty"` // why it could not be written
}

// partlyError says that nothing is damaged, but that something could not be
// done; it ends with status 5.
type partlyError struct{ text string }

func (e partlyError) Error() string { return e.text }

// Is makes it a snapshot.ErrIncomplete, without the words that are about backups.
func (e partlyError) Is(target error) bool { return target == snapshot.ErrIncomplete }

// verified prints a report and makes it an exit status. One that could not be
// printed is a failure, whatever it says.
func (g *globals) verified(r *report.Report, v *verdictReport) error {
	out := &keptError{to: g.stdout}
	printing := *g
	printing.stdout = out
	if g.output == "json" {
		if err := printing.printJSON(verifyReport{r.Status(), r, v}); err != nil {
			out.err = err
		}
	} else {
		printing.printVerified(r, v)
	}
	if out.err != nil {
		return fmt.Errorf("the report (%s) could not be written: %w", r.Status(), out.err)
	}
	return exitOf(r, v)
}

// keptError keeps the first error of writing, which fmt's callers let go.
type keptError struct {
	to  io.Writer
	err error
}

func (o *keptError) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// exitOf is the error that makes the exit status of a report.
func exitOf(r *report.Report, v *verdictReport) error {
	switch r.Status() {
	case report.Damaged:
		n := len(r.Findings())
		return &snapshot.DamagedError{Object: r.Target, Offset: -1, Err: fmt.Errorf("%d %s: see the report", n, plural(n, "fault", "faults"))}
	case report.Unchecked:
		return partlyError{r.Target + ": nothing was found damaged, but not everything could be checked: see the report"}
	default:
	}
	if v != nil && v.Error != "" {
		return partlyError{"all checks passed, but the verdict could not be written: " + v.Error + "; use --no-verdict where the repository may only be read"}
	}
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// printVerified prints a line for each check, and each finding below its own.
func (g *globals) printVerified(r *report.Report, v *verdictReport) {
	for _, c := range r.Checks {
		g.printf("%-9s %-9s %s", c.Status, c.Rung, c.Object)
		if c.Bytes > 0 {
			g.printf("  (%s in %s)", size(c.Bytes), took(c.Took))
		}
		fmt.Fprintln(g.stdout)
		if g.verbose && c.Compared != "" {
			g.printf("          compared: %s\n", c.Compared)
		}
		for _, f := range c.Findings {
			g.printf("          %s: %s\n", f.Kind, f)
		}
		if c.Reason != "" {
			g.printf("          not checked: %s\n", c.Reason)
		}
		for _, p := range c.Phases {
			g.printf("          %s: %s\n", p.Name, took(p.Took))
		}
	}
	if s := r.Sample; s != nil {
		g.printf("Sample (--seed %d): %s\n", s.Seed, s.Coverage)
	}
	for _, n := range r.Notes {
		g.printf("Note: %s\n", n)
	}
	switch {
	case v == nil:
	case v.Error != "":
		g.printf("No verdict was written: %s\n", v.Error)
	case v.Signed:
		g.printf("Verdict %d, signed, is in the repository\n", v.Sequence)
	default:
		g.printf("Verdict %d is in the repository\n", v.Sequence)
	}
	g.printf("%s up to the rung %s: %s\n", r.Target, r.Rung, inWords(r))
}

// inWords is the result in a sentence.
func inWords(r *report.Report) string {
	after := took(r.Finished.Sub(r.Started).Round(time.Millisecond))
	switch n := len(r.Findings()); r.Status() {
	case report.Damaged:
		return fmt.Sprintf("DAMAGED, %d %s, after %s", n, plural(n, "fault", "faults"), after)
	case report.Unchecked:
		return "not all could be checked, the rest passed, after " + after
	default:
		return "passed after " + after
	}
}
