package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// mayStart refuses a member of a cluster that another one has taken the place of:
// by what this host remembers, and by the repositories.
func (h *host) mayStart(ctx context.Context) (warnings []string, err error) {
	cluster, err := h.cluster()
	if err != nil {
		return nil, err
	}
	if b := h.State.Superseding(cluster); b != nil {
		return nil, fmt.Errorf("the data in %s is of cluster %s, which was superseded by cluster %s in run %s: undo that run to go back to it, or set the data aside",
			h.Config.Member.DataDir, cluster, b.New, b.Run)
	}
	warnings, err = h.superseded(ctx, cluster, h.State.TakenBack(cluster))
	for _, w := range warnings {
		h.Logger.Warn("before a member is started", "warning", w)
	}
	return warnings, err
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
// one's, and may be started. Warnings say what could not be asked, and what did not count.
func MayStart(ctx context.Context, cfg *Config) (warnings []string, err error) {
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
	return h.mayStart(ctx)
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

// superseded asks the repositories whether a cluster was superseded: it was where one
// of them has timelines of it, and all of these have ended. One that cannot be asked
// in time is a warning: a repository that is away must not keep a cluster down.
func (h *host) superseded(ctx context.Context, cluster snapshot.ID, takenBack []snapshot.ID) (warnings []string, err error) {
	marks, errs := askEach(ctx, h, func(ctx context.Context, repo *repository.Repository) (*repository.Superseded, error) {
		return newestEnd(ctx, repo, cluster, takenBack)
	})
	for i, ended := range marks {
		if errs[i] != nil {
			warnings = append(warnings, fmt.Sprintf("whether the member's timeline was superseded could not be asked of repositories[%d]: %v: make sure that no newer cluster took its place", i, errs[i]))
		} else if ended != nil {
			err = errors.Join(err, fmt.Errorf("the data is of cluster %s, whose timeline %s was superseded by %s (%s): start the members of the newer cluster, or undo that recovery to go back to this one",
				cluster, ended.Timeline, ended.By, ended.Reason))
		}
	}
	return warnings, err
}

// newestEnd is the mark that ended the newest timeline of a cluster, where all of them
// have ended; nil where one lives, or none is known.
func newestEnd(ctx context.Context, repo *repository.Repository, cluster snapshot.ID, takenBack []snapshot.ID) (*repository.Superseded, error) {
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	var newest *repository.Superseded
	for _, id := range ids {
		if snapshot.ID(id.ClusterID) != cluster {
			continue
		}
		ended, is, err := repo.Superseded(ctx, id)
		switch {
		case errors.Is(err, repository.ErrAltered):
			// In doubt it has ended, and the damage is the reason.
			ended = repository.Superseded{Timeline: id, Reason: err.Error()}
		case err != nil:
			return nil, err
		case !is, slices.Contains(takenBack, snapshot.ID(ended.By.ClusterID)):
			return nil, nil
		}
		newest = &ended
	}
	return newest, nil
}

// askEach asks something of each repository of the configuration, in the time that there is
// for all of them, and gives the answers in their order: one, or an error.
func askEach[T any](ctx context.Context, h *host, ask func(context.Context, *repository.Repository) (T, error)) ([]T, []error) {
	type answer struct {
		i     int
		value T
		err   error
	}
	late := fmt.Errorf("it gave no answer in %v", h.askFor)
	ctx, cancel := context.WithTimeoutCause(ctx, h.askFor, late)
	defer cancel()
	urls := h.Config.Repositories
	values, errs, answers := make([]T, len(urls)), make([]error, len(urls)), make(chan answer, len(urls))
	for i, url := range urls {
		errs[i] = late
		go func() {
			a := answer{i: i}
			var repo *repository.Repository
			if repo, a.err = h.open(ctx, url); a.err == nil {
				a.value, a.err = ask(ctx, repo)
				a.err = errors.Join(a.err, repo.Sink().Close())
			}
			if a.err != nil {
				a.err = because(ctx, a.err)
			}
			answers <- a
		}()
	}
	for range urls {
		select {
		case a := <-answers:
			values[a.i], errs[a.i] = a.value, a.err
		case <-ctx.Done(): // a folder of a dead mount hears of no deadline
			return values, errs
		}
	}
	return values, errs
}

// askFor is how long one is tried that is asked along with others, within a time that
// is short already.
const askFor = 5 * time.Second

// open opens a repository of the configuration. The caller closes its sink.
func (h *host) open(ctx context.Context, url string) (*repository.Repository, error) {
	var keys signing.Keys
	if files := h.Config.Trust; files != nil {
		var err error
		if keys.Trust, err = signing.ParseTrust(*files); err != nil {
			return nil, err
		}
	}
	sink, err := place.Open(ctx, url, sinks.Options{Retry: sinks.Retry{For: askFor}})
	if err != nil {
		return nil, err
	}
	repo, err := repository.Open(ctx, repository.WithKeys(sink, keys))
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	return repo, nil
}
