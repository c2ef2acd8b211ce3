package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// newAgain is how long ago a backup may have been begun that checksum still counts
// as new where no verdict is about it.
const newAgain = 7 * 24 * time.Hour

// Why there is nothing to verify.
const (
	noneYet    = "there is no full snapshot yet"
	noneNew    = "nothing is new since it was last verified"
	nothingYet = "there is nothing to compare it with yet"
)

// target is what one process verifies: a backup, or the newest one of a timeline
// with the log behind it.
type target struct{ backup, timeline string }

// targetsOf are the targets of a job; where there are none, why is the reason.
type targetsOf func(s *inventory, newest *snapshot.Manifest) (all []target, why string)

// latest is the newest full snapshot of a timeline, and the log behind it.
func latest(m *snapshot.Manifest) target { return target{snapshot.Latest, m.Timeline.String()} }

// checksum reads what is new: the newest backup with the log after it, and those
// of the last days that nobody has read.
func (t *session) checksum(ctx context.Context, task *job.Task) (job.Result, error) {
	return t.verify(ctx, task, report.Checksum, unread)
}

func unread(s *inventory, newest *snapshot.Manifest) ([]target, string) {
	var all []target
	for _, m := range s.Manifests {
		_, proved := s.chain.Newest(m, report.Checksum)
		_, damaged := s.chain.Damaged(m)
		if m != newest && !proved && !damaged && time.Since(m.Started) <= newAgain {
			all = append(all, target{m.ID, m.Timeline.String()})
		}
	}
	// Whatever was read before, the log has grown since.
	return append(all, latest(newest)), ""
}

// structure proves the newest backup, unless that was done already.
func (t *session) structure(ctx context.Context, task *job.Task) (job.Result, error) {
	return t.verify(ctx, task, report.Structure, unproved)
}

func unproved(s *inventory, newest *snapshot.Manifest) ([]target, string) {
	if _, proved := s.chain.Newest(newest, report.Structure); proved {
		return nil, noneNew
	}
	return []target{{newest.ID, newest.Timeline.String()}}, ""
}

// replay proves that the log leads to the newest backup.
func (t *session) replay(ctx context.Context, task *job.Task) (job.Result, error) {
	return t.verify(ctx, task, report.Replay, theLatest)
}

// drill restores the newest backup into a scratch cluster.
func (t *session) drill(ctx context.Context, task *job.Task) (job.Result, error) {
	return t.verify(ctx, task, report.Drill, theLatest)
}

func theLatest(_ *inventory, newest *snapshot.Manifest) ([]target, string) {
	return []target{latest(newest)}, ""
}

// chosen are the full snapshot that is the reason of a run, or those that its job verifies.
func (t *session) chosen(ctx context.Context, task *job.Task, due targetsOf) ([]target, string, error) {
	if args, is := task.Arg.(arguments); is {
		return []target{{backup: args.Backup}}, "", nil
	}
	s, err := t.backups(ctx)
	if err != nil {
		return nil, "", err
	}
	newest := t.newestOf(s)
	switch {
	case newest != nil:
		all, why := due(s, newest)
		return all, why, nil
	case len(s.Damaged) > 0:
		return []target{{backup: verify.All}}, "", nil // it says what became of them
	}
	return nil, noneYet, nil
}

// backups are those that the repository has now.
func (t *session) backups(ctx context.Context) (*inventory, error) {
	s, err := newInventory(ctx, t.documents)
	if err != nil {
		return nil, err
	}
	return s, s.lookAtBackups(ctx)
}

// newestOf is the newest full snapshot of the history that the cluster goes on in:
// of several the archiver knows which, or else the clocks of those who took them.
func (t *session) newestOf(s *inventory) *snapshot.Manifest {
	if _, _, archiver := t.opened(); archiver != nil {
		if m := s.newestOf(archiver.State().Timeline); m != nil {
			return m
		}
	}
	return s.newest()
}

// verify verifies one target after the other, each in a process of its own, so
// that what one took is given back. Damage in one keeps none of the others from
// being looked at.
func (t *session) verify(ctx context.Context, task *job.Task, level report.Level, due targetsOf) (job.Result, error) {
	targets, why, err := t.chosen(ctx, task, due)
	if err != nil {
		return job.Result{}, err
	}
	all := job.Result{Text: why}
	var damaged, unchecked []error
	for _, one := range targets {
		r, err := t.child(ctx, level, one)
		if err != nil {
			return all, together(append(damaged, err))
		}
		all.Bytes, all.Text = all.Bytes+r.Bytes, r.Text
		switch {
		case r.Damaged != "":
			damaged = append(damaged, fmt.Errorf("damage was found in %s: %s", strings.TrimSuffix(r.Of, ","), r.Damaged))
		case r.Unchecked != "":
			unchecked = append(unchecked, fmt.Errorf("%s could not be verified whole: %s", r.Of, r.Unchecked))
		}
	}
	if len(damaged) > 0 {
		all.Damaged, all.Final = true, true
		return all, together(append(damaged, unchecked...))
	}
	if len(targets) > 1 && len(unchecked) == 0 {
		all.Text = fmt.Sprintf("%d full snapshots, and the log after the newest, passed the level %s: %s read", len(targets), level, humanize.IBytes(uint64(all.Bytes)))
	}
	return all, together(unchecked)
}

// together joins errors in one line: it is shown as how a run ended.
func together(all []error) (err error) {
	for _, one := range all {
		if err == nil {
			err = one
			continue
		}
		err = fmt.Errorf("%w; %w", err, one)
	}
	return err
}
