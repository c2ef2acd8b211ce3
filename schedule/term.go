package schedule

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/schedule/api"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/merge"
)

// term is the time of one configuration: from its being taken up to the next
// one, or to the end of the agent.
type term struct {
	*Agent
	cfg        *config.Config
	sink       sinks.Sink
	codec      codec.Options
	identities []age.Identity
	trusted    []ed25519.PublicKey

	// What is opened when it can be reached, in the background.
	mu       sync.Mutex
	client   *store.Client
	repo     *repository.Repository
	archiver *archive.Archiver
	runner   *job.Runner
	board    *job.Board
	waiting  string           // why this agent does no jobs
	failures map[string]error // why something is not open yet, by what
	seen     observations
	asked    asked // the last full snapshot that was due by size
	// firstAsked is when the first full snapshot was asked for; first, the claim on
	// it, is of watchRepository alone.
	firstAsked time.Time
	first      *repository.Claimant
	lookedAt   string // the newest full snapshot that the archiver was told of
	ended      bool   // another term follows, or none

	// exclusive tells that the repository decides between several writers.
	exclusive bool

	longest map[string]time.Duration // between two slots, by job
	tellers []teller
	mergers map[repository.TimelineID]*merge.Merger // of the job merge alone
	relist  chan struct{}                           // asks for a look at the repository soon
}

// newTerm opens what needs no network, so that a configuration which cannot be
// honoured is refused while the old one goes on.
func (a *Agent) newTerm(ctx context.Context, cfg *config.Config) (*term, error) {
	t := &term{Agent: a, cfg: cfg, failures: map[string]error{}, mergers: map[repository.TimelineID]*merge.Merger{}, relist: make(chan struct{}, 1)}
	if err := errors.Join(cfg.Check()...); err != nil {
		return nil, err
	}
	var err error
	if t.codec, err = cfg.Codec(); err != nil {
		return nil, err
	}
	if t.identities, err = cfg.Identities(); err != nil {
		return nil, err
	}
	if t.trusted, err = cfg.TrustedKeys(); err != nil {
		return nil, err
	}
	if _, err := cfg.SigningKey(); err != nil {
		return nil, err
	}
	if t.tellers, err = t.newTellers(); err != nil {
		return nil, err
	}
	for _, e := range t.entries() {
		if err := e.Check(); err != nil {
			return nil, err
		}
	}
	t.longest = periods(cfg)
	if err := t.listen().Check(); err != nil {
		return nil, err
	}
	cfg.Logger = a.Logger
	if t.sink, err = cfg.OpenSink(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// periods are the longest times between two slots of each job.
func periods(cfg *config.Config) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, j := range cfg.Jobs.All() {
		_, all[j.Name] = config.Periods(j.Timing.Schedule, cfg.Zone())
	}
	return all
}

// end says that nothing new is begun in this term.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// close gives back what the term has open, when run has returned.
func (t *term) close() error {
	t.mu.Lock()
	client := t.client
	t.mu.Unlock()
	var err error
	if client != nil {
		err = client.Close()
	}
	return errors.Join(err, t.sink.Close())
}

func (t *term) listen() api.ListenConfig {
	l := t.cfg.Listen
	return api.ListenConfig{Address: l.Address, Cert: l.Cert, Key: l.Key, ClientCA: l.ClientCA, AllowPlaintext: l.AllowPlaintext}
}

// run works until ctx ends. Nothing that is away keeps the rest from working.
func (t *term) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() {
		if !t.cfg.HasCluster() || t.connect(ctx) != nil {
			return
		}
		all.Go(func() { t.watchCluster(ctx) })
		if t.cfg.Archiving() {
			all.Go(func() { t.archive(ctx) })
			all.Go(func() { t.sampleRecoveryPoint(ctx) })
		}
	})
	all.Go(func() {
		if t.openRepository(ctx) != nil {
			return
		}
		all.Go(func() { t.watchRepository(ctx) })
		all.Go(func() { t.doJobs(ctx) })
	})
	all.Go(func() { t.watchHost(ctx) })
	all.Go(func() { t.tell(ctx) })
	all.Wait()
}

// tryAgain is how soon what cannot be opened is tried again, at first and after a
// while: each try of a repository is a few requests.
const tryAgain, tryAgainLater = 2 * time.Second, 10 * time.Second

// until tries something until it works, or ctx ends; why it does not yet is in
// the status, and in the log when it changes.
func (t *term) until(ctx context.Context, what string, try func() error) error {
	told := ""
	for pause := tryAgain; ; pause = min(2*pause, tryAgainLater) {
		err := try()
		t.mu.Lock()
		if err == nil {
			delete(t.failures, what)
		} else {
			t.failures[what] = err
		}
		t.mu.Unlock()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if text := err.Error(); text != told {
			t.Logger.Warn(what+" cannot be reached yet", "err", err)
			told = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// connect waits until the cluster lets the agent log in.
func (t *term) connect(ctx context.Context) error {
	return t.until(ctx, "etcd", func() error {
		cfg, err := t.cfg.ClientConfig() // the password may have been mended
		if err != nil {
			return err
		}
		cfg.Logger = t.Logger
		client, err := store.Dial(ctx, cfg)
		if err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.client = client
		return nil
	})
}

// openRepository waits until the repository is there, and makes it where there
// is none yet.
func (t *term) openRepository(ctx context.Context) error {
	return t.until(ctx, "repository", func() error {
		abilities, err := t.sink.Abilities(ctx)
		if err != nil {
			return err
		}
		if !abilities.ExclusiveCreate && t.cfg.Repository.Writer == "" {
			return fmt.Errorf("%s does not decide between several writers of one name: name the one agent that writes in repository.writer, or use a server with conditional puts", t.sink)
		}
		repo, err := repository.Init(ctx, t.sink, time.Now())
		if err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.repo, t.exclusive = repo, abilities.ExclusiveCreate
		if w := t.cfg.Repository.Writer; !abilities.ExclusiveCreate && w != t.cfg.Name {
			t.waiting = fmt.Sprintf("%s does not decide between several writers of one name, and repository.writer names agent %s as the one that writes", t.sink, w)
		}
		return nil
	})
}

// opened are the parts that are open by now; any may be nil.
func (t *term) opened() (*store.Client, *repository.Repository, *archive.Archiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.client, t.repo, t.archiver
}
