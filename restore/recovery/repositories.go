package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
)

// repositoryPatience is how long a repository may be away: the others, and the
// members, may do without it.
const repositoryPatience = 20 * time.Second

// Repositories are those that a recovery reads and writes. One that cannot be opened
// stops nothing.
type Repositories struct {
	Opened []*repository.Repository
	Unread []sources.Unread
	Errors []error // of each of Unread
}

// openRepositories opens all of these at once. The caller closes them.
func openRepositories(ctx context.Context, urls []string, keys signing.Keys, o sinks.Options) *Repositories {
	opened, errs := make([]*repository.Repository, len(urls)), make([]error, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		all.Go(func() { opened[i], errs[i] = open(ctx, url, keys, o) })
	}
	all.Wait()
	r := &Repositories{}
	for i, err := range errs {
		if err != nil {
			r.Unread = append(r.Unread, sources.Unread{Repository: place.Name(urls[i]), Reason: err.Error()})
			r.Errors = append(r.Errors, err)
			continue
		}
		r.Opened = append(r.Opened, opened[i])
	}
	return r
}

func open(ctx context.Context, url string, keys signing.Keys, o sinks.Options) (*repository.Repository, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*max(o.Retry.For, repositoryPatience), errors.New("it does not answer"))
	defer cancel()
	s, err := place.Open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	repo, err := repository.Open(ctx, repository.WithKeys(s, keys))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return repo, nil
}

// Close closes all that were opened.
func (r *Repositories) Close() error {
	var errs []error
	for _, repo := range r.Opened {
		errs = append(errs, repo.Sink().Close())
	}
	return errors.Join(errs...)
}

// repositories opens those of the cluster file. The caller closes them.
func (d *coordinator) repositories(ctx context.Context) *Repositories {
	o := d.req.Sinks
	o.Retry.For = cmp.Or(o.Retry.For, repositoryPatience)
	return openRepositories(ctx, d.cfg.Repositories, d.cfg.Keys(), o)
}

// identities open what is encrypted in the repositories.
func (d *coordinator) identities() (all []age.Identity, err error) {
	for _, path := range d.cfg.IdentityFiles {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, fmt.Errorf("identities: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// codecOf is how the full snapshot at the end is stored.
func codecOf(c *Config) (codec.Options, error) {
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

// unreadable says why the full snapshot that a plan begins from cannot be read, while nothing is
// stopped yet; empty if it can, or none is read. What is read of a log the survey has read.
func (d *coordinator) unreadable(ctx context.Context, plan *sources.Plan, repos *Repositories) string {
	c := plan.Candidate(plan.Chosen)
	if c == nil || c.Source == nil || c.Source.Base.Backup == "" {
		return ""
	}
	base := c.Source.Base
	identities, err := d.identities()
	if err != nil {
		return err.Error()
	}
	errs := slices.Clone(repos.Errors)
	for _, repo := range repos.Opened {
		if err := beginBackup(ctx, repo, base, identities); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", repo, err))
			continue
		}
		return ""
	}
	return fmt.Sprintf("backup %s of timeline %s cannot be read: %v: mend repositories or identity-files in %s, or the credentials (docs/quorum-loss.md), and run it again", base.Backup, base.Timeline, errors.Join(errs...), d.cfg.File())
}

// beginBackup reads the beginning of a full snapshot, and opens it if it is encrypted.
func beginBackup(ctx context.Context, repo *repository.Repository, base sources.Base, identities []age.Identity) (err error) {
	m, err := snapshot.ReadManifest(ctx, repo, base.Timeline, base.Backup)
	if err != nil {
		return err
	}
	in, err := repo.Sink().Open(ctx, m.Object.Name, 0, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if !m.Object.Encrypted() {
		_, err := io.ReadFull(in, make([]byte, 1))
		return err
	}
	r, err := codec.NewReader(ctx, in, m.Object.Encoding, identities...)
	if err != nil {
		return err
	}
	return r.Close()
}
