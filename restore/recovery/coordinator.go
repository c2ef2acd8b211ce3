package recovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
)

// coordinator is one command at work.
type coordinator struct {
	req      Request
	cfg      *Config
	reporter *reporter
	logger   *slog.Logger
	now      func() time.Time

	run       string      // the run's ID
	runs      []*host.Run // of the state folder, oldest first
	journal   *host.Run   // the run's; nil while nothing is decided
	state     *runState   // what it says
	hosts     []*participant
	folder    string // of summaries
	continued bool
	before    *host.Run // an undo that is as good as done, and is over once this run begins

	takesBack bool // it is an undo

	mu           sync.Mutex // of known
	patience     time.Duration
	proveTimeout time.Duration
	election     time.Duration
	watchAfter   time.Duration
	elected      time.Time // until when members that answer may elect a leader
}

func newCoordinator(req Request) (*coordinator, error) {
	if req.Config == nil {
		return nil, errors.New("recover: no cluster file is given")
	}
	d := &coordinator{req: req, cfg: req.Config, reporter: &reporter{events: req.Events}, logger: req.Logger, now: time.Now, state: newRunState(), patience: cmp.Or(req.patience, patience), proveTimeout: cmp.Or(req.proveTimeout, proveTimeout),
		election: cmp.Or(req.election, electionTime), watchAfter: cmp.Or(req.watchAfter, watchAfter)}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	return d, nil
}

// newRunID is one that hosts take, and that sorts by time where clocks
// are right.
func newRunID(now time.Time) string {
	return "recovery-" + now.UTC().Format("20060102T150405") + "-" + randomHex(4)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}

// reach makes the clients of the hosts, which know the run. No command is started yet.
func (d *coordinator) reach() error {
	identities, environment, err := host.Secrets(d.cfg.IdentityFiles)
	if err != nil {
		return err
	}
	lines := Lines(d.cfg, d.req.Version, identities, environment)
	for i, h := range d.cfg.Hosts {
		d.hosts = append(d.hosts, &participant{HostConfig: h, line: lines[i], client: lines[i].As(d.run, "")})
	}
	return nil
}

// Lines makes the hosts of a cluster file, in its order: each can be asked, and can
// fetch data of the others. What a rebuild needs to read repositories (see
// host.Secrets) goes to each of them: a caller that only asks gives none. The caller
// closes each.
func Lines(cfg *Config, version string, identities []string, environment map[string]string) []*host.Remote {
	lines := map[string]*host.Remote{}
	fetch := func(ctx context.Context, a host.FetchArguments, w io.Writer) (*host.Sent, error) {
		from := lines[a.Member]
		if from == nil {
			return nil, fmt.Errorf("the cluster file has no host of member %q", a.Member)
		}
		return from.As(a.Run, "").Data(ctx, a.DataArguments, w)
	}
	var all []*host.Remote
	for _, h := range cfg.Hosts {
		cfgOfHost := &host.Config{Member: h.MemberConfig, Clients: h.Clients, StateDir: h.StateDir, Repositories: cfg.Repositories, Identities: identities, Trust: cfg.Keys().Trust.Files(), Environment: environment}
		line := host.NewRemote(host.RemoteOptions{Member: h.Member, Command: append(h.Command(), h.Requorum, "host"), Config: cfgOfHost, Version: version, Fetch: fetch})
		lines[h.Member], all = line, append(all, line)
	}
	return all
}

func (d *coordinator) close() {
	for _, h := range d.hosts {
		h.line.Close()
	}
}

// host gives the one of a member; nil where the cluster file has none.
func (d *coordinator) host(member string) *participant {
	i := slices.IndexFunc(d.hosts, func(h *participant) bool { return h.Member == member })
	if i < 0 {
		return nil
	}
	return d.hosts[i]
}

// present are the hosts that work is done on: those that answer.
func (d *coordinator) present() []*participant {
	return slices.DeleteFunc(slices.Clone(d.hosts), func(h *participant) bool { return h.state.Unreachable != "" })
}

// getting are the hosts that get a member of the new cluster.
func (d *coordinator) getting() []*participant {
	var all []*participant
	for _, m := range d.state.decision.Members {
		if h := d.host(m.Name); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// write adds an entry to the run's journal.
func (d *coordinator) write(e host.Entry, data any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	written, err := d.journal.Add(e, data)
	if err != nil {
		return err
	}
	return d.state.take(written)
}

// ended tells of the runs that are over: what they hold is free for a new one.
func (d *coordinator) ended(id string) bool {
	for _, r := range d.runs {
		if r.ID() == id {
			k, err := read(r)
			return err == nil && (k.over() || k.putBack())
		}
	}
	return false
}

func (d *coordinator) lastRun() (*host.Run, *runState, error) {
	if len(d.runs) == 0 {
		return nil, nil, nil
	}
	r := d.runs[len(d.runs)-1]
	k, err := read(r)
	if err != nil {
		return nil, nil, fmt.Errorf("journal of run %s: %w", r.ID(), err)
	}
	return r, k, nil
}

// reached is the first phase that is not done, of those that there are in this run.
func (d *coordinator) reached() Phase {
	for _, p := range Phases() {
		asks := p == PhasePreflight || p == PhaseSurvey
		takes := p == PhaseTakeOver && len(d.state.decision.TakesOver) == 0
		stores := slices.Contains([]Phase{PhaseLineage, PhaseSupersede, PhaseSnapshot}, p) && len(d.cfg.Repositories) == 0
		if !asks && !takes && !stores && !d.state.done(p, "") {
			return p
		}
	}
	return PhaseSnapshot
}

// pause waits, and reports whether there is still a reason to.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
