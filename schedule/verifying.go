package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/synthetic"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// newAgain is how long ago a backup may have been begun that checksum still counts
// as new where no verdict is about it.
const newAgain = 7 * 24 * time.Hour

// checksum reads what is new: the newest backup with the log after it, and those
// of the last days that nobody has read.
func (t *term) checksum(ctx context.Context, task *job.Task) (job.Result, error) {
	backups, err := t.chosen(ctx, task, func(s *stock) []string {
		if len(s.catalog.Manifests)+len(s.catalog.Damaged) == 0 {
			return nil // there will be one soon
		}
		var all []string
		for _, m := range s.catalog.Manifests {
			if _, proved := s.chain.Newest(m, report.Checksum); proved || time.Since(m.Started) > newAgain {
				continue
			}
			if _, known := s.chain.Damaged(m); !known {
				all = append(all, m.ID)
			}
		}
		// Whatever was read before, the log has grown since.
		return append(all, snapshot.Latest)
	})
	if err != nil {
		return job.Result{}, err
	}
	sample := float64(t.cfg.Jobs.Checksum.Sample)
	if sample >= 100 {
		sample = 0
	}
	return t.verify(ctx, task, report.Checksum, backups, sample)
}

// structure proves the newest backup, unless that was done already.
func (t *term) structure(ctx context.Context, task *job.Task) (job.Result, error) {
	backups, err := t.chosen(ctx, task, func(s *stock) []string {
		m := s.newest()
		if m == nil {
			return nil
		}
		if _, proved := s.chain.Newest(m, report.Structure); proved {
			return nil
		}
		return []string{m.ID}
	})
	if err != nil {
		return job.Result{}, err
	}
	return t.verify(ctx, task, report.Structure, backups, 0)
}

// replay proves that the log leads to the newest backup.
func (t *term) replay(ctx context.Context, task *job.Task) (job.Result, error) {
	return t.prove(ctx, task, report.Replay)
}

// drill restores the newest backup into a scratch cluster.
func (t *term) drill(ctx context.Context, task *job.Task) (job.Result, error) {
	return t.prove(ctx, task, report.Drill)
}

func (t *term) prove(ctx context.Context, task *job.Task, rung report.Rung) (job.Result, error) {
	backups, err := t.chosen(ctx, task, func(s *stock) []string {
		if s.newest() == nil {
			return nil
		}
		return []string{snapshot.Latest}
	})
	if err != nil {
		return job.Result{}, err
	}
	return t.verify(ctx, task, rung, backups, 0)
}

// chosen are the backups that a run is asked to verify, or those that are due.
func (t *term) chosen(ctx context.Context, task *job.Task, due func(*stock) []string) ([]string, error) {
	args, err := parseArguments(task.Job, task.Arg)
	if err != nil {
		return nil, job.Final(err)
	}
	if args.Backup != "" {
		return []string{args.Backup}, nil
	}
	s, err := newStock(ctx, t.sink, t.trusted)
	if err != nil {
		return nil, err
	}
	if err := s.look(ctx, time.Now()); err != nil {
		return nil, err
	}
	return due(s), nil
}

// verify verifies backups one after the other, each in a process of its own, so
// that what one took is given back.
func (t *term) verify(ctx context.Context, task *job.Task, rung report.Rung, backups []string, sample float64) (job.Result, error) {
	var all job.Result
	for _, backup := range backups {
		answer, err := t.child(ctx, childRequest{Verify: &verifyRequest{Rung: rung, Backup: backup, Sample: sample}}, task.Progress)
		if err != nil {
			return all, err
		}
		var r verifyAnswer
		if err := json.Unmarshal(answer, &r); err != nil {
			return all, fmt.Errorf("the process that verified answered %q: %w", answer, err)
		}
		all.Bytes, all.Verdict = all.Bytes+r.Bytes, r.Verdict
		all.Text = r.Text
		if r.Damaged != "" {
			return all, job.Final(fmt.Errorf("damage was found in %s (verdict %d): %s", r.Of, r.Verdict, r.Damaged))
		}
		if r.Unchecked != "" {
			return all, fmt.Errorf("%s could not be verified whole (verdict %d): %s", r.Of, r.Verdict, r.Unchecked)
		}
	}
	switch len(backups) {
	case 0:
		all.Text = "nothing is new since it was last verified"
	case 1:
	default:
		all.Text = fmt.Sprintf("%d backups and the log passed the rung %s", len(backups)-1, rung)
	}
	return all, nil
}

// timeline is the one that the cluster goes on in: the archiver knows, or the
// newest full snapshot tells.
func (t *term) timeline(ctx context.Context) (repository.TimelineID, error) {
	if _, _, archiver := t.opened(); archiver != nil {
		if id := archiver.State().Timeline; id.ClusterID != 0 {
			return id, nil
		}
	}
	s, err := newStock(ctx, t.sink, t.trusted)
	if err != nil {
		return repository.TimelineID{}, err
	}
	if err := s.look(ctx, time.Now()); err != nil {
		return repository.TimelineID{}, err
	}
	if m := s.newest(); m != nil {
		return m.Timeline, nil
	}
	return repository.TimelineID{}, synthetic.ErrNoBase
}

// synthetic makes a full snapshot of the newest one and the log.
func (t *term) synthetic(ctx context.Context, task *job.Task) (job.Result, error) {
	timeline, err := t.timeline(ctx)
	if err != nil {
		return job.Result{}, err
	}
	answer, err := t.child(ctx, childRequest{Synthetic: &syntheticRequest{Timeline: timeline, ID: task.BackupID(), Attempt: task.Attempt, Slot: task.Slot}}, task.Progress)
	if err != nil {
		return job.Result{}, err
	}
	var r syntheticAnswer
	if err := json.Unmarshal(answer, &r); err != nil {
		return job.Result{}, fmt.Errorf("the process that made it answered %q: %w", answer, err)
	}
	switch {
	case r.Lost:
		return job.Result{}, job.ErrLost
	case r.Nothing != "":
		return job.Result{Text: r.Nothing}, nil
	}
	return job.Result{Backup: r.Backup, Bytes: r.Bytes, Text: r.Text}, nil
}
