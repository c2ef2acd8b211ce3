package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
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

// OpenRepositories opens all of these at once. The caller closes them.
func OpenRepositories(ctx context.Context, urls []string, keys signing.Keys, o sinks.Options) *Repositories {
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
	return OpenRepositories(ctx, d.cfg.Repositories, d.cfg.Keys(), sinks.Options{Retry: sinks.Retry{For: repositoryPatience}})
}

// identities open what is encrypted in the repositories.
func (d *coordinator) identities() (all []age.Identity, err error) {
	for _, path := range d.cfg.IdentityFiles {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, fmt.Errorf("identity-files of %s: %w", d.cfg.File(), err)
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

// routes are those to the chosen state: a host may go any of them.
func (p *Preview) routes() []sources.Source {
	if p.Plan == nil {
		return nil
	}
	c := p.Plan.Candidate(p.Plan.Chosen)
	switch {
	case c == nil || c.Source == nil:
		return nil
	case p.Plan.Named:
		return c.Source.Ways()[:1]
	}
	return c.Source.Ways()
}

// storedOf is what a way reads of repositories.
func storedOf(way sources.Source) (all []host.Stored) {
	if way.Base.Backup != "" {
		all = append(all, host.Stored{Timeline: way.Base.Timeline, Backup: way.Base.Backup})
	}
	for _, piece := range way.Log {
		if t, is := sources.TimelineOf(piece.Owner); is && !slices.Contains(all, host.Stored{Timeline: t}) {
			all = append(all, host.Stored{Timeline: t})
		}
	}
	return all
}

// membersOf are those whose data a way reads.
func membersOf(way sources.Source) (all []string) {
	return slices.DeleteFunc(way.Owners(), func(name string) bool {
		_, is := sources.TimelineOf(name)
		return is
	})
}

// askRepositories has the hosts that may build from a repository say what they can read
// there, with their own credentials and keys, while nothing is stopped yet.
func (d *coordinator) askRepositories(ctx context.Context, p *Preview) error {
	var pieces []host.Stored
	for _, way := range p.routes() {
		for _, s := range storedOf(way) {
			if !slices.Contains(pieces, s) {
				pieces = append(pieces, s)
			}
		}
	}
	var all sync.WaitGroup
	for _, h := range d.present() {
		h.state.Repositories, h.state.Unasked = nil, ""
		gets := len(p.Members) == 0 || slices.ContainsFunc(p.Members, func(m sources.NewMember) bool { return m.Name == h.Member })
		// What those hold that still run may lead to another plan, which may need them.
		if gets && (len(pieces) > 0 || len(p.Unsurveyed) > 0) {
			all.Go(func() { d.askRepositoriesOf(ctx, h, pieces) })
		}
	}
	all.Wait()
	return ctx.Err()
}

func (d *coordinator) askRepositoriesOf(ctx context.Context, h *participant, pieces []host.Stored) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errors.New("no answer within "+askTimeout.String()))
	defer cancel()
	found, err := h.client.Repositories(ctx, pieces)
	if err != nil {
		h.state.Unasked = err.Error()
		return
	}
	h.state.Repositories = append([]host.Repository{}, found...)
}

// withheld is a host that cannot use all sources of a plan, for what it cannot read of
// repositories.
type withheld struct {
	host *participant
	what []host.Stored // of the first of these sources
	why  string
	// instead are the members whose data the first remaining source uses.
	instead []string
	none    bool // no source is left
}

// withheldFrom are these hosts. One that did not say is none of them, nor one that has
// built its member already.
func (d *coordinator) withheldFrom(p *Preview) (all []withheld) {
	for _, h := range d.present() {
		if h.state.Repositories == nil || d.decision != nil && h.built != "" && h.built == d.decision.PlanID {
			continue
		}
		w := withheld{host: h, none: true}
		for _, way := range p.routes() {
			pieces := storedOf(way)
			if h.state.reads(pieces) {
				if members := membersOf(way); w.none || slices.Equal(members, []string{h.Member}) {
					w.instead, w.none = members, false
				}
			} else if w.what == nil {
				w.what, w.why = pieces, h.state.unreadable(pieces)
			}
		}
		if w.what != nil {
			all = append(all, w)
		}
	}
	return all
}

// reads reports whether one of the host's repositories has all of these.
func (h *HostState) reads(pieces []host.Stored) bool {
	return len(pieces) == 0 || slices.ContainsFunc(h.Repositories, func(r host.Repository) bool { return r.Unread(pieces) == "" })
}

// unreadable says why none of them has.
func (h *HostState) unreadable(pieces []host.Stored) string {
	if len(h.Repositories) == 0 {
		return "the cluster file names no repository"
	}
	var all []string
	for _, r := range h.Repositories {
		all = append(all, r.URL+": "+r.Unread(pieces))
	}
	return strings.Join(all, "; ")
}

func (w *withheld) words() string {
	var all []string
	for _, s := range w.what {
		all = append(all, s.What())
	}
	return fmt.Sprintf("the host of %s cannot read %s (%s)", w.host.Member, strings.Join(all, " and "), w.why)
}

// mend is the next step.
func (w *withheld) mend() string {
	return "mend repositories or identity-files in the cluster file, or the credentials (docs/quorum-loss.md)"
}

// blocker says why a recovery would end half-way at this host; empty where it would
// not, as far as is known.
func (w *withheld) blocker(p *Preview) string {
	if !w.none || len(p.Unsurveyed) > 0 && !p.Plan.Named {
		return ""
	}
	return fmt.Sprintf("%s, and there is no other way by which it could build its member: %s, and run it again", w.words(), w.mend())
}

// warning says what that changes; empty where it is nothing, or a blocker.
func (w *withheld) warning(p *Preview) string {
	switch {
	case w.blocker(p) != "", slices.Equal(w.instead, []string{w.host.Member}):
		return ""
	case w.none:
		return fmt.Sprintf("%s: unless what %s holds is another way, the run ends once that is stopped and read, with nothing set aside: %s first", w.words(), strings.Join(p.Unsurveyed, ", "), w.mend())
	case len(w.instead) == 0:
		return ""
	}
	return fmt.Sprintf("%s: it builds its member from the data of %s", w.words(), strings.Join(w.instead, ", "))
}
