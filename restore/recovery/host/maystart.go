package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Ended are the marks that ended all timelines of one cluster in a repository.
type Ended []repository.Superseded

// mayStart refuses a member of a cluster that another one has taken the place of:
// by what this host remembers, and by the marks in the repositories.
func (h *host) mayStart(ended []Ended) error {
	cluster, err := h.cluster()
	if err != nil {
		return err
	}
	if b := h.State.Superseding(cluster); b != nil {
		return fmt.Errorf("the data in %s is of cluster %s, which was superseded by cluster %s in run %s: undo that run to go back to it, or set the data aside",
			h.Config.Member.DataDir, cluster, b.New, b.Run)
	}
	takenBack := h.State.TakenBack(cluster)
	var all error
	for _, marks := range ended {
		newest := marks[len(marks)-1]
		if snapshot.ID(newest.Timeline.ClusterID) != cluster || slices.ContainsFunc(marks, func(m repository.Superseded) bool { return slices.Contains(takenBack, snapshot.ID(m.By.ClusterID)) }) {
			continue
		}
		all = errors.Join(all, fmt.Errorf("the data is of cluster %s, whose timeline %s was superseded by %s (%s): start the members of the newer cluster, or undo that recovery to go back to this one",
			cluster, newest.Timeline, newest.By, newest.Reason))
	}
	return all
}

// cluster is the one whose member the directories are of, as their log says.
func (h *host) cluster() (snapshot.ID, error) {
	m := h.Config.Member
	log, err := walfile.Open(restore.LogDir(m.DataDir, m.WALDir))
	if err != nil {
		return 0, fmt.Errorf("which cluster the data in %s is of cannot be read: %w", m.DataDir, err)
	}
	return snapshot.ID(log.Identity().ClusterID), nil
}

// MayStart is the check before a member is started by its own supervisor: it fails
// where the directories are of a cluster that another one has taken the place of, or
// were left by a recovery that is under way. Directories without a member are a new
// one's, and may be started. Warnings are those of ReadEnded.
func MayStart(ctx context.Context, cfg *Config, repositories []string, keys signing.Keys) (warnings []string, err error) {
	h, err := newHost(&process{Options: Options{Logger: slog.New(slog.DiscardHandler), tuning: tuning{}.orDefault()}}, cfg)
	if err != nil {
		return nil, err
	}
	if h.State, err = readState(cfg.StateDir); err != nil {
		return nil, err
	}
	m := cfg.Member
	if none, err := noMember(m.DataDir, m.WALDir); none || err != nil {
		return nil, err
	}
	if err := restore.CheckStartable(m.DataDir, m.WALDir); err != nil {
		return nil, err
	}
	ended, warnings := ReadEnded(ctx, repositories, keys)
	return warnings, h.mayStart(ended)
}

// noMember reports whether the directories hold nothing of a member, not even what a
// recovery leaves in the place of one.
func noMember(dataDir, walDir string) (bool, error) {
	for _, dir := range []string{filepath.Join(dataDir, "member"), walDir} {
		if dir == "" {
			continue
		}
		names, err := safedir.Names(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || len(names) > 0 {
			return false, err
		}
	}
	return true, nil
}

// ReadEnded asks repositories which clusters were superseded: those all of whose timelines have ended
// there. One that cannot be asked within 10 s is a warning: a repository that is unreachable must not
// keep a cluster down.
func ReadEnded(ctx context.Context, urls []string, keys signing.Keys) (ended []Ended, warnings []string) {
	return readEnded(ctx, urls, keys, 10*time.Second)
}

func readEnded(ctx context.Context, urls []string, keys signing.Keys, within time.Duration) (ended []Ended, warnings []string) {
	type answer struct {
		i     int
		ended []Ended
		err   error
	}
	late := fmt.Errorf("it gave no answer in %v", within)
	ctx, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	all, answers := make([]answer, len(urls)), make(chan answer, len(urls))
	for i, url := range urls {
		all[i].err = late
		go func() {
			a := answer{i: i}
			a.ended, a.err = endedIn(ctx, url, keys)
			answers <- a
		}()
	}
wait:
	for range urls {
		select {
		case a := <-answers:
			all[a.i] = a
		case <-ctx.Done(): // a folder of a dead mount hears of no deadline
			break wait
		}
	}
	for i, a := range all {
		ended = append(ended, a.ended...)
		if a.err != nil {
			warnings = append(warnings, fmt.Sprintf("whether the member's timeline was superseded could not be asked of repositories[%d]: %v: make sure that no newer cluster took its place", i, a.err))
		}
	}
	return ended, warnings
}

// endedIn reads which clusters have ended in a repository.
func endedIn(ctx context.Context, url string, keys signing.Keys) (ended []Ended, err error) {
	sink, err := place.Open(ctx, url, sinks.Options{Retry: sinks.Retry{For: askFor}})
	if err != nil {
		return nil, because(ctx, err)
	}
	repo, err := repository.Open(ctx, repository.WithKeys(sink, keys))
	if err == nil {
		ended, err = endedClusters(ctx, repo)
	}
	if err = errors.Join(err, sink.Close()); err != nil {
		return nil, because(ctx, err)
	}
	return ended, nil
}

// endedClusters are the clusters all of whose timelines have ended.
func endedClusters(ctx context.Context, repo *repository.Repository) ([]Ended, error) {
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	marks, live := map[uint64]Ended{}, map[uint64]bool{}
	for _, id := range ids {
		mark, is, err := repo.Superseded(ctx, id)
		switch {
		case errors.Is(err, repository.ErrAltered):
			// In doubt it has ended, and the damage is the reason.
			mark = repository.Superseded{Timeline: id, Reason: err.Error()}
		case err != nil:
			return nil, err
		case !is:
			live[id.ClusterID] = true
			continue
		}
		marks[id.ClusterID] = append(marks[id.ClusterID], mark)
	}
	maps.DeleteFunc(marks, func(cluster uint64, _ Ended) bool { return live[cluster] })
	return slices.Collect(maps.Values(marks)), nil
}

// askFor is how long one is tried that is asked along with others, within a time that
// is short already.
const askFor = 5 * time.Second
