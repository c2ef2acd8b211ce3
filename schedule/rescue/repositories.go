package rescue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
)

// repositoryPatience is how long a repository may be away: the others, and the
// members, may do without it.
const repositoryPatience = 20 * time.Second

// repositories are those of the cluster file. One that cannot be opened stops
// nothing.
type repositories struct {
	all        []*opened
	identities []age.Identity
}

type opened struct {
	url  string
	sink sinks.Sink
	repo *repository.Repository
	err  error
}

// repositories opens all of them. The caller closes them.
func (d *driver) repositories(ctx context.Context) (*repositories, error) {
	r := &repositories{}
	for _, path := range d.cfg.IdentityFiles {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, fmt.Errorf("identity-files of %s: %w", d.cfg.File(), err)
		}
		r.identities = append(r.identities, some...)
	}
	var all sync.WaitGroup
	for _, url := range d.cfg.Repositories {
		o := &opened{url: url}
		r.all = append(r.all, o)
		all.Go(func() { o.open(ctx) })
	}
	all.Wait()
	return r, nil
}

func (o *opened) open(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*repositoryPatience, errors.New("it does not answer"))
	defer cancel()
	s, err := place.Open(ctx, o.url, repositoryPatience)
	if err != nil {
		o.err = err
		return
	}
	o.sink = sinks.Retry(s, sinks.RetryPolicy{For: repositoryPatience})
	o.repo, o.err = repository.Open(ctx, o.sink)
}

func (r *repositories) opened() (all []*repository.Repository) {
	for _, o := range r.all {
		if o.repo != nil {
			all = append(all, o.repo)
		}
	}
	return all
}

func (r *repositories) unread() (all []recovery.Unread) {
	for _, o := range r.all {
		if o.err != nil {
			all = append(all, recovery.Unread{Repository: place.Name(o.url), Reason: o.err.Error()})
		}
	}
	return all
}

func (r *repositories) close() error {
	var errs []error
	for _, o := range r.all {
		if o.sink != nil {
			errs = append(errs, o.sink.Close())
		}
	}
	return errors.Join(errs...)
}

// codecOf is how the full snapshot at the end is stored.
func codecOf(c *config.Config) (codec.Options, error) {
	o := codec.Options{Level: codec.DefaultLevel}
	for _, s := range c.Recipients {
		r, err := codec.ParseRecipient(s)
		if err != nil {
			return o, fmt.Errorf("recipients of %s: %w", c.File(), err)
		}
		o.Recipients = append(o.Recipients, r)
	}
	for _, path := range c.RecipientsFiles {
		some, err := codec.ParseRecipientsFile(path)
		if err != nil {
			return o, fmt.Errorf("recipients-files of %s: %w", c.File(), err)
		}
		o.Recipients = append(o.Recipients, some...)
	}
	return o, nil
}
