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
	if t.mayNotWrite(ctx) {
		return
	}
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

// mayNotWrite waits until it is known whether this agent may write, where only
// one agent may. While the repository is away that is not known, and the log
// stays where it is: in the member's own files.
func (t *session) mayNotWrite(ctx context.Context) bool {
	if t.cfg.Repository.Writer == "" || t.cfg.Repository.Writer == t.cfg.Name {
		return false
	}
	for {
		t.mu.Lock()
		known, waiting := t.repo != nil, t.waiting != ""
		t.mu.Unlock()
		if known {
			return waiting
		}
		select {
		case <-ctx.Done():
			return true
		case <-time.After(tryAgain):
		}
	}
}

func (t *session) archiveOnce(ctx context.Context) error {
	client, _, _ := t.opened()
	c := t.cfg.Archive
	var archiver *archive.Archiver
	keeper := &Keeper{Sink: t.documents, Take: t.takeDue, Notify: t.notifyFirst}
	archiver, err := archive.New(archive.Config{
		Client: client, DataDir: t.cfg.Member.DataDir, WALDir: t.cfg.Member.WALDir,
		Sink: t.sink, Codec: t.codec, SingleWriter: t.cfg.Repository.Writer == t.cfg.Name, Identities: t.identities, Tool: t.Tool,
		SpoolDir: c.SpoolDir, SpoolLimit: int64(c.SpoolLimit), Interval: c.Interval.Std(), Size: int64(c.Size),
		Takeover: c.Takeover.Std(), CheckpointHash: c.CheckpointHash.Std(), Logger: t.Logger,
		OnGap:  keeper.EnsureFull,
		Events: t.archiveEvent,
		Origin: func(cluster uint64) (repository.Timeline, bool) {
			return restore.Origin(t.cfg.Member.DataDir, cluster)
		},
	})
	if err != nil {
		return err
	}
	keeper.Archiver = archiver
	t.mu.Lock()
	t.archiver = archiver
	t.mu.Unlock()
	beginning, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { keeper.KeepBeginning(beginning) })
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
	level, text := slog.LevelInfo, "alarm is over"
	if e.Raised {
		level, text = slog.LevelWarn, "alarm"
	}
	t.Logger.Log(context.Background(), level, text, "alarm", e.Alarm, "why", e.Text)
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
		// At the beginning of its work it does not know yet what is there.
		if s.Timeline.ClusterID != 0 && s.Role != archive.Starting {
			t.point.durable(t.sink.String()+" "+s.Timeline.String(), s.Recoverable)
		}
	})
}
