package archive

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
)

// place is a repository that an archiver knows: its URL, and its own ID.
type place struct {
	URL        string `json:"url"`
	Repository string `json:"repository"`
}

// openRepository opens the repository, and makes one only where this archiver never knew
// any: where one is gone, a new one in its stead would take the log from then on
// as if nothing had been before. An unmounted file system looks just like that.
func (s *session) openRepository(ctx context.Context) (*repository.Repository, error) {
	sink := s.a.sink
	known := s.position.Place
	if known.URL != sink.String() || known.Repository == "" {
		return repository.Init(ctx, sink, s.Now())
	}
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, fmt.Errorf("the repository that was archived to is not there: %w; is its file system mounted? If it was given up on purpose, choose another --spool-dir", err)
	}
	// Without a marker, which its Damage tells, there is no ID to compare.
	if repo.ID() != "" && repo.ID() != known.Repository {
		return nil, fmt.Errorf("%s holds another repository (%s) than the one that was archived to (%s): is another file system mounted there? If it was replaced on purpose, choose another --spool-dir", sink, repo.ID(), known.Repository)
	}
	return repo, nil
}

// remember notes which repository it is, at once: the next start may find none.
func (s *session) remember(repo *repository.Repository) error {
	now := place{s.a.sink.String(), repo.ID()}
	if repo.ID() == "" || now == s.position.Place {
		return nil
	}
	s.position.Place = now
	return s.savePosition(true)
}
