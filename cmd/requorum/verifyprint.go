package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
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
	Backups int    `json:"backups"`         // whose verdicts were written
	Error   string `json:"error,omitempty"` // why they could not be written
}

// verified prints a report and makes it an exit status.
func (g *globals) verified(r *report.Report, v *verdictReport, require report.Level) error {
	if g.output == "json" {
		if err := g.printJSON(verifyReport{r.Status(), r, v}); err != nil {
			return err
		}
	} else {
		g.printVerified(r, v)
	}
	return exitOf(r, v, require)
}

// exitOf is the error that makes the exit status of a report.
func exitOf(r *report.Report, v *verdictReport, require report.Level) error {
	switch r.Status() {
	case report.Damaged:
		return &snapshot.DamagedError{Object: r.Target, Offset: -1, Err: fmt.Errorf("%s: see the report", report.Counted(len(r.Findings()), "fault", "faults"))}
	case report.Unchecked:
		return snapshot.IncompleteError(r.Target + ": nothing was found damaged, but not everything could be checked: see the report")
	default:
	}
	if require != "" && len(r.NotYet(require)) > 0 {
		return snapshot.IncompleteError(fmt.Sprintf("%s: the level %s cannot be proved yet: see the report", r.Target, require))
	}
	if v != nil && v.Error != "" {
		return snapshot.IncompleteError("all checks passed, but the verdict could not be written: " + v.Error + "; use --no-verdict where the repository may only be read")
	}
	return nil
}

// printVerified prints a line for each check, and each finding below its own.
func (g *globals) printVerified(r *report.Report, v *verdictReport) {
	for _, c := range r.Checks {
		g.printf("%-9s %-9s %s", c.Status, c.Level, c.Object)
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
	for _, n := range r.Notes {
		g.printf("Note: %s\n", n)
	}
	switch {
	case v == nil:
	case v.Error != "":
		g.printf("No verdict was written: %s\n", v.Error)
	default:
		g.printf("Verdict written on %s\n", report.Counted(v.Backups, "backup", "backups"))
	}
	g.printf("%s up to the level %s: %s\n", r.Target, r.Level, inWords(r))
}

// inWords is the result in a sentence.
func inWords(r *report.Report) string {
	after := took(r.Finished.Sub(r.Started).Round(time.Millisecond))
	switch r.Status() {
	case report.Damaged:
		return fmt.Sprintf("DAMAGED, %s, after %s", report.Counted(len(r.Findings()), "fault", "faults"), after)
	case report.Unchecked:
		return "not all could be checked, the rest passed, after " + after
	default:
		if len(r.NotYet(r.Level)) > 0 {
			return "passed, but for what cannot be proved yet, after " + after
		}
		return "passed after " + after
	}
}

// junitFile is where the report for a CI system goes. It is there from the
// beginning and says then that the run did not end: however that comes to be, the
// report of an earlier run is not taken for this one's. A nil one writes nothing.
type junitFile struct {
	file    *os.File
	regular bool // else it is a pipe or a device, which takes one report only
	began   time.Time
	target  string
	level   string
}

// openJUnit opens the file that was asked for.
func (o *verifyOptions) openJUnit() (*junitFile, error) {
	if o.junit == "" {
		return nil, nil
	}
	f, err := createReport(o.junit)
	if err != nil {
		return nil, err
	}
	j := &junitFile{file: f, began: time.Now(), target: "repository", level: o.level}
	switch {
	case o.file != "":
		j.target = o.file
	case o.dataDir != "":
		j.target = o.dataDir
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		j.regular = true
		err = j.put(j.failed("the run did not end: it was killed, or the machine went down"))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// createReport opens a file for a report, and none that another user chose: as
// root it would be any file to which a link was planted in /tmp or beside a member's data.
func createReport(path string) (*os.File, error) {
	switch filepath.Dir(path) {
	case "/dev", "/dev/fd", "/proc/self/fd": // a pipe, or a terminal
		return os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	}
	f, err := safedir.OpenWritable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return safedir.Create(path)
	}
	return f, err
}

// end writes the report, or why there is none, and closes the file.
func (j *junitFile) end(r *report.Report, err error) error {
	if j == nil {
		return nil
	}
	if r == nil {
		reason := "nothing was verified"
		if err != nil {
			reason = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		r = j.failed(reason)
	}
	if err := errors.Join(j.put(r), j.file.Close()); err != nil {
		return fmt.Errorf("--junit %s: %w", j.file.Name(), err)
	}
	return nil
}

// failed is a report with one check, which could not be done.
func (j *junitFile) failed(reason string) *report.Report {
	return &report.Report{
		Target: j.target, Level: report.Level(j.level), Tool: "requorum " + version, Started: j.began, Finished: time.Now(),
		Checks: []report.Check{{Level: report.Level(j.level), Status: report.Unchecked, Object: j.target, Reason: reason}},
	}
}

// put replaces what is in the file.
func (j *junitFile) put(r *report.Report) error {
	if j.regular {
		if err := j.file.Truncate(0); err != nil {
			return err
		}
		if _, err := j.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return report.WriteJUnit(j.file, r)
}
