package verify

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/verify/report"
)

// quietly does one step on a stopped member's files. Where the member was started
// meanwhile what was read is of two moments: nothing that the step found counts
// then, and no later step is done.
func (d *dataDir) quietly(step func() error) error {
	if d.disturbed != "" {
		return nil
	}
	checks, notes := len(d.report.Checks), len(d.report.Notes)
	if err := step(); err != nil {
		return err
	}
	if !d.isDisturbed() {
		return nil
	}
	d.report.Notes = d.report.Notes[:notes]
	for i, c := range d.report.Checks[checks:] {
		d.report.Checks[checks+i] = report.Check{Rung: c.Rung, Status: report.Unchecked, Object: c.Object, Bytes: c.Bytes, Took: c.Took, Reason: d.disturbed}
	}
	return nil
}

// isDisturbed asks whether the member is still stopped, and was all the time.
func (d *dataDir) isDisturbed() bool {
	if err := restore.CheckMemberIdle(d.dir, d.walDir); err != nil {
		d.disturbed = fmt.Sprintf("the member did not stay stopped while its files were read (%v): verify it again while it is, or verify a backup of it", err)
	} else if !maps.Equal(d.files, d.look()) {
		d.disturbed = "its files changed while they were read: keep the member stopped and verify it again, or verify a backup of it"
	}
	return d.disturbed != ""
}

// look is the size and time of each file of the database and of the log, as far
// as they can be asked: who reads them tells.
func (d *dataDir) look() map[string]string {
	all := map[string]string{}
	for _, folder := range []string{d.walDir, filepath.Dir(d.db)} {
		list, _ := os.ReadDir(folder) // see above
		for _, e := range list {
			if info, err := e.Info(); err == nil {
				all[filepath.Join(folder, e.Name())] = fmt.Sprintf("%d %s", info.Size(), info.ModTime())
			}
		}
	}
	return all
}

// refuseLeft adds the checks that were asked for and not begun.
func (d *dataDir) refuseLeft() {
	for _, rung := range report.Rungs() {
		begun := slices.ContainsFunc(d.report.Checks, func(c report.Check) bool { return c.Rung == rung })
		if d.Rung.Includes(rung) && !begun {
			d.add(report.Check{Rung: rung, Object: d.dir, Reason: d.disturbed})
		}
	}
}
