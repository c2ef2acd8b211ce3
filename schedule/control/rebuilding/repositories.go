package rebuilding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
)

// retryFor is how long a rebuild waits for a repository that is away.
const retryFor = time.Minute

// opened is a repository with what was read of it.
type opened struct {
	*repository.Repository
	meter *meter
}

// open opens a repository of the configuration. The caller closes its sink.
func open(ctx context.Context, url string, retry time.Duration) (*opened, error) {
	sink, err := place.Open(ctx, url, retry)
	if err != nil {
		return nil, err
	}
	if retry > 0 {
		sink = sinks.Retry(sink, sinks.RetryPolicy{For: retry})
	}
	m := &meter{Sink: sink}
	repo, err := repository.Open(ctx, m)
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	return &opened{repo, m}, nil
}

// openRepositories opens those of the configuration, and reads the keys to what is
// encrypted there. It is called where a way needs them: neither one that is away nor
// a key that is missing is to hold up a host that builds from members' data.
func (s *session) openRepositories(ctx context.Context) {
	if s.looked {
		return
	}
	s.looked = true
	if s.identities, s.unopened = s.Builder.identities(); s.unopened == nil {
		s.repositories, s.unopened = s.openAll(ctx)
	}
}

// openAll opens those of the configuration that are there; why says what is wrong
// with the others.
func (b *Builder) openAll(ctx context.Context) (all []*opened, why error) {
	for _, url := range b.config.Repositories {
		o, err := open(ctx, url, retryFor)
		if err != nil {
			why = errors.Join(why, err)
			continue
		}
		all = append(all, o)
	}
	return all, why
}

func (b *Builder) identities() ([]age.Identity, error) {
	var all []age.Identity
	for _, path := range b.config.IdentityFiles {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, fmt.Errorf("identity-files: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func closeAll(all []*opened) error {
	var errs []error
	for _, o := range all {
		errs = append(errs, o.meter.Close())
	}
	return errors.Join(errs...)
}

func repositoriesOf(all []*opened) (repos []*repository.Repository) {
	for _, o := range all {
		repos = append(repos, o.Repository)
	}
	return repos
}
