package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/segment"
)

// Grace is how long the agent takes to end at most.
const Grace = 25 * time.Second

// Options are what an agent needs beside its configuration.
type Options struct {
	Tool string // such as "requorum 1.2.3"
	// Program is the path of requorum, whose command verify jobs run.
	Program string
	// Logger gets one line for each event that matters.
	Logger *slog.Logger
}

// Agent is what runs beside a member.
type Agent struct {
	Options
	started  time.Time
	point    recoveryPoint
	problems problemLog
	reloads  chan *config.Config
	// trustEvery is how often the files that say whom to trust are looked at: what is
	// revoked is not believed for longer, though nobody sends SIGHUP.
	trustEvery time.Duration

	mu      sync.Mutex
	current *session
	refused error // the reload that was refused last; nil when the newest one holds
}

// New makes an agent. What its configuration names is opened by Run, but what
// is invalid is an error here.
func New(ctx context.Context, cfg *config.Config, o Options) (*Agent, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{Options: o, started: time.Now(), reloads: make(chan *config.Config), trustEvery: time.Minute}
	first, err := a.newSession(ctx, cfg)
	if err != nil {
		return nil, err
	}
	a.current = first
	return a, nil
}

// Run works until ctx ends. Its error is why it could not go on: the listener
// failed. It may be called once.
func (a *Agent) Run(ctx context.Context) (err error) {
	t := a.session()
	handler, err := a.handler()
	if err != nil {
		return errors.Join(err, t.close())
	}
	listen := t.cfg.Listen
	port, err := web.Listen(ctx, listen)
	if err != nil {
		return errors.Join(err, t.close())
	}
	a.Logger.Info("status page", "url", statusPage(listen, port))
	// The port outlives a configuration, so that another one can replace it without the
	// agent seeming to be gone.
	serving, stop := context.WithCancel(ctx)
	var served sync.WaitGroup
	defer served.Wait()
	defer stop()
	failed := make(chan error, 1)
	served.Go(func() {
		if err := web.Serve(serving, port, web.Current(listen, handler, a.Logger), a.Logger); err != nil {
			failed <- err
		}
	})
	for {
		next, err := a.serve(ctx, t, failed)
		if next == nil || err != nil {
			return err
		}
		a.mu.Lock()
		a.current = next
		a.mu.Unlock()
		t = next
	}
}

// statusPage returns the URL of the status page.
func statusPage(listen config.Listen, on net.Listener) string {
	scheme := "http"
	if listen.Cert != "" {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s/", scheme, on.Addr())
}

// serve works with a configuration until ctx ends, a listener fails, or another
// configuration is to be taken up, which is returned.
func (a *Agent) serve(ctx context.Context, t *session, failed <-chan error) (next *session, err error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { t.run(working) })
	a.Logger.Info("agent works", "name", t.cfg.Name, "repository", t.sink.String())
	trust, refused := repository.KeysOf(t.sink).Trust, false
	look := time.NewTicker(a.trustEvery)
	defer look.Stop()
	for next == nil && err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		case cfg := <-a.reloads:
			next = a.takeUp(ctx, t, cfg)
		case <-look.C:
			if refused || trust.Changed() {
				next = a.takeUp(ctx, t, t.cfg)
				refused = next == nil
			}
		}
	}
	stop()
	all.Wait()
	return next, errors.Join(err, t.close())
}

// takeUp opens what a new configuration names, but for what can come later; nil
// where that fails, and the one before goes on.
func (a *Agent) takeUp(ctx context.Context, before *session, cfg *config.Config) (next *session) {
	var err error
	if cfg.Listen != before.cfg.Listen {
		err = errors.New("listen.address and the other keys of listen cannot change while the agent runs: restart it, or leave them as they were")
	} else {
		next, err = a.newSession(ctx, cfg)
	}
	a.Refuse(err)
	if err != nil {
		return nil
	}
	a.Logger.Info("configuration read again")
	return next
}

// Reload takes up another configuration: what is under way ends as at the end
// of the agent, and goes on with it.
func (a *Agent) Reload(ctx context.Context, cfg *config.Config) {
	select {
	case a.reloads <- cfg:
	case <-ctx.Done():
	}
}

// Refuse says that a configuration could not be read: the old one goes on, and
// the status says why. nil takes that back.
func (a *Agent) Refuse(err error) {
	a.mu.Lock()
	a.refused = err
	a.mu.Unlock()
	if err != nil {
		a.Logger.Error("configuration refused, the old one goes on", "err", err)
	}
}

func (a *Agent) session() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// Status is what the agent knows. It may be called at any time.
func (a *Agent) Status() *web.Status { return a.session().describe(time.Now()) }

// handler answers on the agent's port, whatever configuration holds.
func (a *Agent) handler() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := errors.Join(
		registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		web.NewMetrics(registry, a.Status),
	); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return web.New(a.Status, promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})), nil
}

// session is the time of one configuration: from its being taken up to the next
// one, or to the end of the agent.
type session struct {
	*Agent
	cfg        *config.Config
	sink       sinks.Sink
	documents  sinks.Sink // the same, and what was read of its documents
	codec      codec.Options
	identities []age.Identity

	// What is opened when it can be reached, in the background.
	mu             sync.Mutex
	client         *client.Client
	repo           *repository.Repository
	archiver       *archive.Archiver
	failures       map[string]error // why something is not open yet, by what
	seen           observations
	loggedVerified string // the full snapshot that was logged last as verified
	lookedAt       string // the newest full snapshot that the archiver has heard of

	runner    *job.Runner
	longest   map[string]time.Duration                  // between two slots, by job
	heartbeat *heartbeat                                // nil where nothing is pinged
	mergers   map[repository.TimelineID]*segment.Merger // of the job merge alone
	relist    chan struct{}                             // asks for a look at the repository soon
}

// newSession opens what needs no network, so that an invalid configuration is
// refused while the old one stays in force.
func (a *Agent) newSession(ctx context.Context, cfg *config.Config) (*session, error) {
	t := &session{Agent: a, cfg: cfg, failures: map[string]error{}, mergers: map[repository.TimelineID]*segment.Merger{}, relist: make(chan struct{}, 1)}
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
	url, err := cfg.HeartbeatURL()
	if err != nil {
		return nil, err
	}
	if url != "" {
		if t.heartbeat, err = newHeartbeat(url, cfg.Heartbeat, t.Logger, t.Status); err != nil {
			return nil, err
		}
	}
	t.longest = periods(cfg)
	if t.runner, err = t.newRunner(); err != nil {
		return nil, err
	}
	cfg.Logger = a.Logger
	if t.sink, err = cfg.OpenSink(ctx); err != nil {
		return nil, err
	}
	t.documents = rememberDocuments(t.sink)
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

// close gives back what the term has open, when run has returned.
func (t *session) close() error {
	t.mu.Lock()
	client := t.client
	t.mu.Unlock()
	var err error
	if client != nil {
		err = client.Close()
	}
	return errors.Join(err, t.sink.Close())
}

// run works until ctx ends. Nothing that is away keeps the rest from working.
func (t *session) run(ctx context.Context) {
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
		all.Go(func() { t.watchSight(ctx) })
		all.Go(func() {
			// Without its marker, the slots and the verdicts would be of another repository.
			var repo *repository.Repository
			if t.until(ctx, "repository's marker", func() (err error) { repo, err = t.openSound(ctx); return err }) == nil {
				t.runner.Run(ctx, repo)
			}
		})
	})
	all.Go(func() { t.watchHost(ctx) })
	if t.heartbeat != nil {
		all.Go(func() { t.heartbeat.run(ctx) })
	}
	all.Wait()
}

// tryAgain is how soon what cannot be opened is tried again, at first and after a
// while: each try of a repository is a few requests.
const tryAgain, tryAgainLater = 2 * time.Second, 10 * time.Second

// until tries something until it works, or ctx ends; why it does not yet is in
// the status, and in the log when it changes.
func (t *session) until(ctx context.Context, what string, try func() error) error {
	last := ""
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
		if text := err.Error(); text != last {
			t.Logger.Warn(what+" cannot be reached yet", "err", err)
			last = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// connect waits until the cluster lets the agent log in.
func (t *session) connect(ctx context.Context) error {
	return t.until(ctx, "etcd", func() error { return t.dial(ctx) })
}

func (t *session) dial(ctx context.Context) error {
	cfg, err := t.cfg.ClientConfig() // the password may have been mended
	if err != nil {
		return err
	}
	cfg.Logger = t.Logger
	client, err := client.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.client = client
	return nil
}

// openRepository waits until the repository exists. If there is none yet, an archiving
// agent makes it.
func (t *session) openRepository(ctx context.Context) error {
	return t.until(ctx, "repository", func() error {
		err := t.initRepository(ctx)
		t.mu.Lock()
		t.seen.sight.err = err
		t.mu.Unlock()
		return err
	})
}

func (t *session) initRepository(ctx context.Context) error {
	abilities, err := t.sink.Abilities(ctx)
	if err != nil {
		return err
	}
	if !abilities.ExclusiveCreate && !t.cfg.Repository.Alone() {
		return fmt.Errorf("%s does not decide between several writers of one name: use a server with conditional puts, or promise with repository.lease: off that only this agent uses the repository", t.sink)
	}
	for _, note := range abilities.Notes {
		t.Logger.Warn(note, "repository", t.sink.String())
	}
	var repo *repository.Repository
	if t.cfg.Archiving() {
		repo, err = archive.OpenRepository(ctx, t.sink, t.cfg.Archive.SpoolDir, time.Now())
	} else { // it does not remember whether one was here: a new one would hide that it is gone
		repo, err = repository.Open(ctx, t.sink)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repo = repo
	return nil
}

// opened are the parts that are open by now; any may be nil.
func (t *session) opened() (*client.Client, *repository.Repository, *archive.Archiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.client, t.repo, t.archiver
}
