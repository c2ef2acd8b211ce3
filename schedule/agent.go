package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/requorum/requorum/schedule/api"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/metrics"
	"github.com/requorum/requorum/schedule/priority"
	"github.com/requorum/requorum/schedule/status"
)

// Grace is how long the agent takes to end at most.
const Grace = 25 * time.Second

// Options are what an agent needs beside its configuration.
type Options struct {
	Tool string // such as "requorum 1.2.3"
	// Command starts a program that calls ServeJob and nothing else: jobs that
	// replay run there.
	Command []string
	// Logger is told of one line for each event that matters.
	Logger *slog.Logger
}

// Agent is what runs beside a member.
type Agent struct {
	Options
	started  time.Time
	point    recoveryPoint
	problems problemBook
	reloads  chan *config.Config

	mu      sync.Mutex
	current *term
	refused error // the reload that was refused last; nil when the newest one holds
}

// New makes an agent. What its configuration names is opened by Run, but what
// cannot be honoured is an error here.
func New(ctx context.Context, cfg *config.Config, o Options) (*Agent, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{Options: o, started: time.Now(), reloads: make(chan *config.Config)}
	first, err := a.newTerm(ctx, cfg)
	if err != nil {
		return nil, err
	}
	a.current = first
	return a, nil
}

// Run works until ctx ends. Its error is why it could not go on: the listener
// failed, or the process's priority could not be set. It may be called once.
func (a *Agent) Run(ctx context.Context) error {
	t := a.term()
	if err := setPriority(t.cfg.Resources); err != nil {
		return errors.Join(err, t.close())
	}
	handler, err := a.handler()
	if err != nil {
		return errors.Join(err, t.close())
	}
	p := &port{handler: handler, logger: a.Logger, failed: make(chan error, 2)}
	if err := p.open(ctx, t.listen()); err != nil {
		return errors.Join(err, t.close())
	}
	defer p.close()
	for {
		next, err := a.serve(ctx, t, p)
		if next == nil || err != nil {
			return err
		}
		a.mu.Lock()
		a.current = next
		a.mu.Unlock()
		t = next
	}
}

// setPriority lets the process stand back, as far as it does not already.
func setPriority(r config.Resources) error {
	ionice := r.IONice
	if ionice == config.NoIONice {
		ionice = ""
	}
	if err := priority.Set(r.Nice, ionice); err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	return nil
}

// serve works with a configuration until ctx ends, or another one is to be taken
// up, which is returned.
func (a *Agent) serve(ctx context.Context, t *term, p *port) (next *term, err error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { t.run(working) })
	a.Logger.Info("agent works", "name", t.cfg.Name, "repository", t.sink.String())
	for next == nil && err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err = <-p.failed:
		case cfg := <-a.reloads:
			next = a.takeUp(ctx, t, cfg, p)
		}
	}
	t.end()
	stop()
	all.Wait()
	return next, errors.Join(err, t.close())
}

// takeUp opens what a new configuration names, but for what can come later; nil
// where that fails, and the one before goes on.
func (a *Agent) takeUp(ctx context.Context, before *term, cfg *config.Config, p *port) *term {
	next, err := a.newTerm(ctx, cfg)
	if err == nil {
		if err = a.exchange(ctx, before, next, p); err != nil {
			err = errors.Join(err, next.close())
		}
	}
	a.refuse(err)
	if err != nil {
		return nil
	}
	a.Logger.Info("configuration read again")
	return next
}

// exchange sets what belongs to the whole process; with an error it is as before.
func (a *Agent) exchange(ctx context.Context, before, next *term, p *port) error {
	if err := p.move(ctx, next.listen()); err != nil {
		return err
	}
	was, now := before.cfg.Resources, next.cfg.Resources
	if now.Nice == was.Nice && now.IONice == was.IONice {
		return nil
	}
	if err := setPriority(now); err != nil {
		return errors.Join(err, p.move(ctx, before.listen()))
	}
	return nil
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
func (a *Agent) Refuse(err error) { a.refuse(err) }

func (a *Agent) refuse(err error) {
	a.mu.Lock()
	a.refused = err
	a.mu.Unlock()
	if err != nil {
		a.Logger.Error("configuration refused, the old one goes on", "err", err)
	}
}

func (a *Agent) term() *term {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// Status is what the agent knows. It may be called at any time.
func (a *Agent) Status() *status.Status { return a.term().describe(time.Now()) }

// Demand starts a job outside its schedule, and names the slot of the run. It
// does not wait for it. Errors wrap those of package api.
func (a *Agent) Demand(ctx context.Context, name string, args json.RawMessage) (string, error) {
	t := a.term()
	if err := t.known(name, args); err != nil {
		return "", err
	}
	return t.demand(ctx, name, args)
}

// handler answers on the agent's port, whatever configuration holds.
func (a *Agent) handler() (func(trusted bool) http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := errors.Join(
		registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		metrics.New(registry, a.Status),
	); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return once(func(readOnly bool) http.Handler {
		return api.New(api.Options{
			Status: a.Status, Demand: a.Demand, Logger: a.Logger, ReadOnly: readOnly,
			Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}),
			Run:     func(ctx context.Context, job, slot string) (*status.Run, error) { return a.term().find(ctx, job, slot) },
		})
	}), nil
}
