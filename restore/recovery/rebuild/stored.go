package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// stored is a repository that was looked into.
type stored struct {
	repo     *repository.Repository
	catalog  *snapshot.Catalog
	err      error // why it could not be
	archives map[repository.TimelineID]*walreplay.History
}

// TimelineOf reads the name that a survey gives to an archive: a timeline, and
// with several repositories a number behind it.
func TimelineOf(owner string) (t repository.TimelineID, ok bool) {
	name, ok := strings.CutPrefix(owner, recovery.ArchivePrefix)
	if !ok {
		return t, false
	}
	name, _, _ = strings.Cut(name, "@")
	t, err := repository.ParseTimelineID(name)
	return t, err == nil
}

// repositoryOf is the one that the source names for an archive; empty where it
// names none.
func (p *pieces) repositoryOf(owner string) string {
	if b := &p.request.Source.Base; b.Owner == owner {
		return b.Repository
	}
	return ""
}

// backup is a full snapshot of a repository.
func (p *pieces) backup(ctx context.Context) (*walreplay.Base, error) {
	want := &p.request.Source.Base
	h, err := p.archive(ctx, want.Timeline, want.Repository, func(h *walreplay.History) error {
		if baseOf(h, want.Backup) == nil {
			return fmt.Errorf("%s has no full snapshot %s", h.Name, want.Backup)
		}
		return p.leads(h)
	})
	if err != nil {
		return nil, fmt.Errorf("find backup %s: %w", want.Backup, err)
	}
	return baseOf(h, want.Backup), nil
}

// leads keeps a backup and the log of its own timeline together: in the same
// repository.
func (p *pieces) leads(h *walreplay.History) error {
	s := &p.request.Source
	if len(s.Log) == 0 || s.Log[0].Owner != s.Base.Owner || h.Holds(s.Log[0].First, s.Log[0].Last) {
		return nil
	}
	return fmt.Errorf("%s does not hold all of the entries %d to %d", h.Name, s.Log[0].First, s.Log[0].Last)
}

// archive is a timeline of the first repository that has what is wanted of it:
// the one of the name before the others, which may be copies of it.
func (p *pieces) archive(ctx context.Context, t repository.TimelineID, name string, check func(*walreplay.History) error) (*walreplay.History, error) {
	p.open()
	order := slices.Clone(p.repos)
	slices.SortStableFunc(order, func(a, b *stored) int {
		switch first := a.repo.String() == name; {
		case first == (b.repo.String() == name):
			return 0
		case first:
			return -1
		}
		return 1
	})
	var reasons []error
	for _, s := range order {
		h, err := s.archive(ctx, t, p.request)
		if err == nil {
			err = check(h)
		}
		if err == nil {
			return h, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		reasons = append(reasons, err)
	}
	where := ""
	if name != "" {
		where = " in " + name
	}
	if len(reasons) == 0 {
		reasons = append(reasons, errors.New("no repository is given"))
	}
	return nil, fmt.Errorf("the source needs timeline %s%s: %w", t, where, errors.Join(reasons...))
}

func (p *pieces) open() {
	if len(p.repos) > 0 {
		return
	}
	for _, repo := range p.request.Repositories {
		p.repos = append(p.repos, &stored{repo: repo, archives: map[repository.TimelineID]*walreplay.History{}})
	}
}

// archive opens a timeline once. What failed is not tried again.
func (s *stored) archive(ctx context.Context, t repository.TimelineID, r *Request) (*walreplay.History, error) {
	if s.catalog == nil && s.err == nil {
		s.catalog, s.err = snapshot.ReadCatalog(ctx, s.repo)
	}
	if s.err != nil {
		return nil, fmt.Errorf("read %s: %w", s.repo, s.err)
	}
	if h := s.archives[t]; h != nil {
		return h, nil
	}
	if !slices.ContainsFunc(s.catalog.Timelines, func(o repository.Timeline) bool { return o.ID == t }) {
		return nil, fmt.Errorf("%s has no such timeline", s.repo)
	}
	h, err := walreplay.OpenArchive(ctx, s.repo, s.catalog, t, r.Identities...)
	if err == nil {
		s.archives[t] = h
	}
	return h, err
}
