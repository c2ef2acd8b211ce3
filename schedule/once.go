package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/walfile"
)

// OnceReport is what Once did. It is part of the interface.
type OnceReport struct {
	State  archive.State      `json:"state"`
	Backup *snapshot.Manifest `json:"backup,omitempty"` // the full snapshot that was due
}

// Once archives what the member has committed now, takes the full snapshot that the log
// needs, and merges. The configuration has a member. Its error names the alarms that are left; the report is nil if
// nothing was archived.
func Once(ctx context.Context, cfg *config.Config, o Options) (*OnceReport, error) {
	if err := checkLog(cfg.Member); err != nil {
		return nil, err
	}
	a, err := New(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	r, err := a.current.once(ctx)
	return r, errors.Join(err, a.current.close())
}

// checkLog returns an error if there is no log to archive. (Without --once etcd may be
// about to make it.)
func checkLog(m config.Member) error {
	dir := cmp.Or(m.WALDir, filepath.Join(m.DataDir, "member", "wal"))
	_, err := walfile.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log in %s: name the member's own --data-dir or, if its log is elsewhere, --wal-dir: %w", dir, err)
	}
	return err
}

func (t *session) once(ctx context.Context) (*OnceReport, error) {
	if err := errors.Join(t.dial(ctx), t.initRepository(ctx)); err != nil {
		return nil, err
	}
	r := &OnceReport{}
	k := &keeper{Sink: t.documents}
	if t.cfg.Jobs.Full.Runs() {
		k.Take = func(ctx context.Context, timeline repository.TimelineID) error {
			req, err := t.fullRequest(ctx, t.client, arguments{Timeline: timeline, Reason: logNeedsFull})
			if err != nil {
				return err
			}
			result, err := snapshot.Take(ctx, req)
			if err == nil {
				r.Backup = result.Manifest
			}
			return err
		}
	}
	archiver, err := t.newArchiver(k)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go t.giveUp(ctx, archiver, end)
	if err = archiver.Once(ctx); err == nil {
		err = k.Begin(ctx)
		if errors.Is(err, archive.ErrElsewhere) || err != nil && k.Take == nil {
			t.Logger.Warn(err.Error())
			err = nil
		}
	}
	if err == nil && t.cfg.Jobs.Merge.Runs() {
		_, err = t.merge(ctx, nil)
	}
	r.State = archiver.State()
	wrong := cmp.Or(t.startedOver(ctx), t.findRepository(ctx))
	switch {
	case wrong != nil && err == nil:
		return r, fmt.Errorf("the log is archived to index %d: %w", r.State.Archived, wrong)
	case err != nil && r.State.Timeline == (repository.TimelineID{}):
		return nil, err
	case err != nil:
		return r, err
	}
	var texts []string
	for _, alarm := range r.State.Alarms {
		texts = append(texts, fmt.Sprintf("%s: %s", alarm.Alarm, alarm.Text))
	}
	if len(texts) > 0 {
		return r, fmt.Errorf("the log is archived to index %d, with alarms: %s", r.State.Archived, strings.Join(texts, "; "))
	}
	return r, nil
}

// startedOver returns an error if the cluster began again without archived writes and
// nobody has answered, or if that cannot be read.
func (t *session) startedOver(ctx context.Context) error {
	s, err := newInventory(ctx, t.documents)
	if err == nil {
		err = s.lookAtBackups(ctx)
	}
	if err != nil {
		return err
	}
	return s.CheckStartedOver(ctx)
}

// progressEvery is how often giveUp checks the archiver's progress.
const progressEvery = 250 * time.Millisecond

// giveUp ends ctx if the archiver has met errors and archived nothing for
// repository.retry-for.
func (t *session) giveUp(ctx context.Context, archiver *archive.Archiver, end context.CancelCauseFunc) {
	archived, since, limit := uint64(0), time.Now(), t.cfg.Repository.RetryFor.Std()
	every(ctx, progressEvery, func() {
		switch s := archiver.State(); {
		case s.LastError == "" || s.Archived > archived:
			archived, since = s.Archived, time.Now()
		case time.Since(since) >= limit:
			end(fmt.Errorf("nothing could be archived for %s: %s", limit, s.LastError))
		}
	})
}
