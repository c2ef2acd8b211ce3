package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/requorum/requorum/verify/junit"
	"github.com/requorum/requorum/verify/report"
)

// junitFile is where the report for a CI system goes. It is there from the
// beginning and says then that the run did not end: however that comes to be, the
// report of an earlier run is not taken for this one's. A nil one writes nothing.
type junitFile struct {
	file    *os.File
	regular bool // else it is a pipe or a device, which takes one report only
	began   time.Time
	target  string
	rung    string
}

// openJUnit opens the file that was asked for.
func (o *verifyOptions) openJUnit() (*junitFile, error) {
	if o.junit == "" || o.dryRun {
		return nil, nil
	}
	f, err := os.Create(o.junit)
	if err != nil {
		return nil, err
	}
	j := &junitFile{file: f, began: time.Now(), target: "repository", rung: o.rung}
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
		Target: j.target, Rung: report.Rung(j.rung), Tool: "requorum " + version, Started: j.began, Finished: time.Now(),
		Checks: []report.Check{{Rung: report.Rung(j.rung), Status: report.Unchecked, Object: j.target, Reason: reason}},
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
	return junit.Write(j.file, r)
}
