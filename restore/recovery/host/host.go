// Package host is `requorum host`: the process that the coordinator of a recovery
// starts on each host, through ssh or another command, and that stops, sets aside,
// rebuilds and starts the member there. It listens nowhere, has no configuration of
// its own, and ends with the conversation. It promises:
//
//  1. Requests name members, never paths: what can be read and moved is what the
//     cluster file names.
//  2. Nothing of the user's is destroyed: data is set aside by renaming, and what
//     is put back sets aside what had taken its place.
//  3. No data is moved or sent while the member is not proved to be stopped, and
//     none is started that has no log to start from, or whose cluster was superseded.
//  4. Each action may be repeated by its run, after whatever ended it: it goes on,
//     or says what was done. Where the conversation ends in the middle of an action,
//     that is still done; until then others are refused (Busy).
//  5. What an older line asked for (Header.Epoch), and what another run or another
//     coordinator asks for than those of the newest decision, is refused; so is a
//     decision that is not newer.
//  6. What writes through the cluster from this host is stopped with proof. All of it is
//     started on a cluster that is proved; where a run is taken back, what ran before.
//  7. A rebuild reads this host's own set-aside data, or the one database that the
//     coordinator fetches of the host that built it, each piece compared with the sum that
//     the sender computed. What is built is the cluster that the plan says, and from the
//     cluster that it says, or nothing is.
package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/safedir"
)

// Options are what a host process needs.
type Options struct {
	// Version is compared with the coordinator's, which looks at it before it says
	// anything.
	Version string
	// Logger says what is done; nil is silent. Over ssh it is seen where the
	// coordinator shows what a lost line said last.
	Logger *slog.Logger
	// CheckBase looks at a database beyond its pages before it is relied upon.
	CheckBase func(ctx context.Context, name string, r io.ReaderAt, size int64) error
	tuning
}

// tuning is what tests shorten; zero is the default.
type tuning struct {
	pieceSize int64         // fetched in one request
	stall     time.Duration // how long a copy may stand still
	wait      time.Duration // between attempts at a piece
}

// Serve answers until the coordinator ends the conversation, or ctx ends. An action
// that is under way then is still done.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	if o.CheckBase == nil {
		return errors.New("requorum host: nothing to check databases with")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.tuning = o.orDefault()
	hello, err := json.Marshal(hello{Requorum: o.Version})
	if err != nil {
		return err
	}
	if _, err := out.Write(append(hello, '\n')); err != nil {
		return err
	}
	o.CheckBase = onceEach(o.CheckBase)
	p := &process{Options: o}
	p.conn = newConversation(in, out, p.handle)
	if err := p.conn.Serve(ctx); !errors.Is(err, errEnded) {
		return fmt.Errorf("requorum host: %w", err)
	}
	return nil
}

func (t tuning) orDefault() tuning {
	if t.pieceSize == 0 {
		t = tuning{pieceSize: 64 << 20, stall: 30 * time.Second, wait: time.Second}
	}
	return t
}

// process is one conversation.
type process struct {
	Options
	conn   *conversation
	acting sync.Mutex // held while an action is under way: another is refused at once, and never comes late

	mu  sync.Mutex
	cfg *Config // nil until it is given
}

// host is the host for one request.
type host struct {
	*process
	Config     *Config
	Controller supervisor.Member
	Clients    []supervisor.Client
	State      *stateFile
}

// handle is the way of all requests: one function for each verb.
func (p *process) handle(ctx context.Context, r *incoming) (any, error) {
	v, err := p.dispatch(ctx, r)
	if err != nil {
		p.Logger.Warn("a request was refused, or failed", "verb", r.Verb, "run", r.Run, "error", err)
		return nil, asRefusal(err)
	}
	return v, nil
}

func (p *process) dispatch(ctx context.Context, r *incoming) (any, error) {
	switch r.Verb {
	case verbConfigure:
		return p.configure(r)
	case verbObserve:
		return read(ctx, p, r, (*host).observe)
	case verbSurvey:
		return read(ctx, p, r, (*host).survey)
	case verbData:
		return read(ctx, p, r, (*host).data)
	case verbHash:
		return read(ctx, p, r, (*host).hash)
	case verbDecide:
		return act(ctx, p, r, (*host).decide)
	case verbStop:
		return act(ctx, p, r, (*host).stop)
	case verbStart:
		return act(ctx, p, r, (*host).start)
	case verbSetAside:
		return act(ctx, p, r, (*host).setAside)
	case verbUndo:
		return act(ctx, p, r, (*host).undo)
	case verbRebuild:
		return act(ctx, p, r, (*host).rebuild)
	case verbQuiesce:
		return act(ctx, p, r, (*host).quiesce)
	case verbResume:
		return act(ctx, p, r, (*host).resume)
	default:
		return nil, refused(BadRequest, fmt.Errorf("%q is nothing that a host does", r.Verb))
	}
}

// configure takes up what the cluster file says of this host.
func (p *process) configure(r *incoming) (*configured, error) {
	var cfg Config
	if err := r.Decode(&cfg); err != nil {
		return nil, err
	}
	// What the state file says is believed, and it is written as this user.
	if err := safedir.TrustedFolder(cfg.StateDir); cfg.StateDir != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refused(BadRequest, fmt.Errorf("state-dir: %w", err))
	}
	known, err := readState(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg != nil {
		return nil, refused(BadRequest, errors.New("it was configured before"))
	}
	p.cfg = &cfg
	return &configured{Epoch: known.Epoch}, nil
}

// host is what a request works with; its State is set by the caller.
func (p *process) host() (*host, error) {
	p.mu.Lock()
	cfg := p.cfg
	p.mu.Unlock()
	if cfg == nil {
		return nil, refused(BadRequest, errors.New("it is not configured yet"))
	}
	return newHost(p, cfg)
}

func newHost(p *process, cfg *Config) (*host, error) {
	controller, err := supervisor.NewMember(cfg.Member, cfg.StateDir)
	if err != nil {
		return nil, err
	}
	all, err := supervisor.NewClients(cfg.Clients, cfg.StateDir)
	return &host{process: p, Config: cfg, Controller: controller, Clients: all}, err
}

// read answers what changes nothing, whatever else goes on.
func read[A any](ctx context.Context, p *process, r *incoming, do func(*host, context.Context, *A, io.Writer) (any, error)) (any, error) {
	var arguments A
	if err := r.Decode(&arguments); err != nil {
		return nil, err
	}
	h, err := p.host()
	if err != nil {
		return nil, err
	}
	if h.State, err = readState(h.Config.StateDir); err != nil {
		return nil, err
	}
	return do(h, ctx, &arguments, r.Data)
}

// act is the way of all that changes something: one at a time on this host, also of
// several processes.
func act[A, R any](ctx context.Context, p *process, r *incoming, do func(*host, context.Context, Header, *A) (R, error)) (_ any, err error) {
	var arguments A
	if err := r.Decode(&arguments); err != nil {
		return nil, err
	}
	h, err := p.host()
	if err != nil {
		return nil, err
	}
	if !p.acting.TryLock() {
		return nil, errBusy
	}
	defer p.acting.Unlock()
	h.State, err = openState(h.Config.StateDir)
	if errors.Is(err, ErrBusy) {
		return nil, errBusy
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.State.Close()) }()
	if err := h.admit(r.Verb, r.Header); err != nil {
		return nil, err
	}
	if err := h.State.note(r.Verb, r.Header); err != nil {
		return nil, err
	}
	// A line that is cut ends nothing half-way: what the next process finds is done, or
	// has failed.
	began := time.Now()
	done, err := do(h, context.WithoutCancel(ctx), r.Header, &arguments)
	if err != nil {
		return nil, err
	}
	p.Logger.Info("an action was done", "verb", r.Verb, "run", r.Run, "seconds", time.Since(began).Seconds())
	return done, nil
}

var errBusy = refused(Busy, errors.New("another action is under way on this member: ask again when it has ended"))

// none are the arguments of an action that has none.
type none struct{}

// admit lets an action through that is for this host, of the newest line, and of the
// run and the coordinator of the newest decision. That itself may be stored by any.
func (h *host) admit(verb verb, a Header) error {
	if name := h.Config.Member.Name; a.Member != name {
		return refused(OtherMember, fmt.Errorf("the request is for member %q, and this host has %q", a.Member, name))
	}
	if err := checkRun(a.Run); err != nil {
		return refused(BadRequest, err)
	}
	if known := h.State.Epoch; a.Epoch < known || a.Epoch == 0 {
		return refused(Outdated, fmt.Errorf("the request is of epoch %d, and the host has been asked in epoch %d since: another coordinator, or another line of this one, has gone on", a.Epoch, known))
	} else if a.Epoch > known {
		h.State.Epoch = a.Epoch
		if err := h.State.save(); err != nil {
			return err
		}
	}
	if newest := h.State.Decided(); newest != nil && newest.Run != a.Run && verb != verbDecide {
		return refused(Conflict, fmt.Errorf("the newest recovery on this host is run %s: another coordinator has begun it", newest.Run))
	} else if newest != nil && newest.By != a.Coordinator && verb != verbDecide {
		return refused(Outdated, fmt.Errorf("decision %d of run %s was stored by another coordinator, which has gone on with the run", newest.Epoch, newest.Run))
	}
	return nil
}

// decide stores a decision that is newer than all that are known here. One that came and
// was not answered may be stored again.
func (h *host) decide(_ context.Context, a Header, d *Decision) (*Done, error) {
	if d.Run != a.Run {
		return nil, refused(BadRequest, fmt.Errorf("a decision of run %q came from run %s", d.Run, a.Run))
	}
	d.By = a.Coordinator
	if newest := h.State.Decided(); newest != nil && d.Epoch <= newest.Epoch {
		if d.Epoch == newest.Epoch && d.Run == newest.Run && d.By == newest.By && bytes.Equal(d.Data, newest.Data) {
			return &Done{}, nil
		}
		return nil, refused(Outdated, fmt.Errorf("decision %d of run %s is stored here, and this one is %d of run %s: another coordinator has gone on", newest.Epoch, newest.Run, d.Epoch, d.Run))
	}
	return &Done{}, h.State.decide(*d)
}

func refused(code Code, err error) error {
	return &RefusedError{Refusal: Refusal{Code: code, Error: err.Error()}, Err: err}
}

// asRefusal finds the code of an error of any package.
func asRefusal(err error) *RefusedError {
	if r, is := err.(*RefusedError); is { //nolint:errorlint // a wrapped one is said with what wraps it
		return r
	}
	var r *RefusedError
	code := Failed
	switch {
	case errors.As(err, &r) && r.Err != nil: // of this host
		code = r.Refusal.Code
	case errors.Is(err, supervisor.ErrRuns), errors.Is(err, supervisor.ErrUnproven), errors.Is(err, restore.ErrInUse):
		code = Running
	case errors.Is(err, restore.ErrNotStartable):
		code = Unstartable
	}
	return &RefusedError{Refusal: Refusal{Code: code, Error: err.Error()}, Err: err}
}

// Config is what a host process is given by the first request.
type Config struct {
	Member   supervisor.MemberConfig
	Clients  []supervisor.ClientConfig
	StateDir string
}
