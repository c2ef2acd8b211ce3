package schedule

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/archive"
)

// archiveAgain is how soon archiving is tried again after an error that time
// does not heal: somebody may.
const archiveAgain = 30 * time.Second

// archive archives the member's log until ctx ends.
func (t *session) archive(ctx context.Context) {
	for {
		err := t.archiveOnce(ctx)
		if ctx.Err() != nil {
			if err != nil {
				t.Logger.Error("the archive did not end cleanly", "err", err)
			}
			return
		}
		t.mu.Lock()
		t.failures["archive"] = err
		t.mu.Unlock()
		t.Logger.Error("archiving ended", "err", err, "again_in", archiveAgain)
		select {
		case <-ctx.Done():
			return
		case <-time.After(archiveAgain):
		}
	}
}

// archiveWell is how long the archiver runs when what ended it before is over.
const archiveWell = 10 * time.Second

func (t *session) archiveOnce(ctx context.Context) error {
	k := &keeper{Sink: t.documents, Take: t.takeDue, Notify: t.notifyFirst}
	archiver, err := t.newArchiver(k)
	if err != nil {
		return err
	}
	beginning, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { k.KeepBeginning(beginning) })
	well := time.AfterFunc(archiveWell, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.failures, "archive")
	})
	err = archiver.Run(ctx)
	well.Stop()
	stop()
	beside.Wait()
	return err
}

// newArchiver returns an archiver, with a keeper of the full snapshots that its log needs.
func (t *session) newArchiver(k *keeper) (*archive.Archiver, error) {
	client, _, _ := t.opened()
	c := t.cfg.Archive
	archiver, err := archive.New(archive.Config{
		Client: client, DataDir: t.cfg.Member.DataDir, WALDir: t.cfg.Member.WALDir,
		Sink: t.sink, Codec: t.codec, SingleWriter: t.cfg.Repository.Alone(), Identities: t.identities, Tool: t.Tool,
		SpoolDir: c.SpoolDir, SpoolLimit: int64(c.SpoolLimit), Interval: c.Interval.Std(), Size: int64(c.Size),
		Takeover: c.Takeover.Std(), Logger: t.Logger,
		OnGap:  k.EnsureFull,
		Events: t.archiveEvent,
		About:  t.about,
		Origin: func(cluster uint64) (repository.Timeline, bool) {
			return restore.Origin(t.cfg.Member.DataDir, cluster)
		},
	})
	if err != nil {
		return nil, err
	}
	k.State, k.LookAgain = archiver.State, archiver.LookAgain
	t.mu.Lock()
	defer t.mu.Unlock()
	t.archiver = archiver
	return archiver, nil
}

// notifyFirst logs what keeps the first full snapshot from being taken here; that
// another agent takes it is in order.
func (t *session) notifyFirst(text string) {
	level := slog.LevelWarn
	if text == archive.ErrElsewhere.Error() {
		level = slog.LevelInfo
	}
	t.Logger.Log(context.Background(), level, "the first full snapshot is not taken here yet", "why", text)
}

// archiveEvent logs alarms that come and go.
func (t *session) archiveEvent(e archive.Event) {
	level, text := slog.LevelInfo, "alarm "+string(e.Alarm)+" is over"
	if e.Raised {
		level, text = slog.LevelWarn, "alarm "+string(e.Alarm)
	}
	t.Logger.Log(context.Background(), level, text, "why", e.Text)
}

// sampleRecoveryPoint follows up to when everything can be restored.
func (t *session) sampleRecoveryPoint(ctx context.Context) {
	every(ctx, sampleEvery, func() {
		_, _, archiver := t.opened()
		if archiver == nil {
			return
		}
		s := archiver.State()
		t.point.confirm(s.Applied, s.Confirmed)
		t.mu.Lock()
		sight, reach := t.seen.sight, t.seen.reach
		t.mu.Unlock()
		// At the beginning of its work it does not know yet what is there. Nor does anyone
		// while the repository does not answer.
		if s.Timeline.ClusterID != 0 && s.Role != archive.Starting && !sight.at.IsZero() && sight.err == nil {
			t.point.durable(t.sink.String()+" "+s.Timeline.String(), reach.least(s.Timeline, s.Recoverable))
		}
	})
}

// least is the smaller of what an archiver believes to be recoverable and what was listed.
func (r *reach) least(t repository.TimelineID, index uint64) uint64 {
	if r != nil && r.timeline == t {
		return min(index, r.index)
	}
	return index
}
