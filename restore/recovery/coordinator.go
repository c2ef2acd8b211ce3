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
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/verify/serve"
)

// coordinator is one command at work. It keeps nothing: see decision.
type coordinator struct {
	id       string // the hosts know it by
	req      Request
	cfg      *Config
	reporter *reporter
	logger   *slog.Logger
	lock     *os.File // of the cluster file; nil where nothing is changed

	hosts []*participant
	codec codec.Options // of the full snapshot at the end

	known     []*decision // of all runs, the newest last
	epoch     uint64      // the newest one's
	run       string
	decision  *decision // of that; nil while nothing is decided
	continued bool
	takesBack bool // it is an undo

	image    atomic.Pointer[os.File] // that was built here, while hosts copy it
	elected  time.Time               // until when members that answer may elect a leader
	starting *starts                 // of the new members, by this command; nil where it starts none

	mu        sync.Mutex
	phases    []PhaseTime
	timelines []TimelinesDone // that were opened
}

// newCoordinator reaches no host yet. With a lock it is for a command that changes
// something. The caller closes it.
func newCoordinator(req Request, lock bool) (_ *coordinator, err error) {
	switch {
	case req.Config == nil:
		return nil, errors.New("recover: no cluster file is given")
	case lock && req.Events == nil:
		return nil, errors.New("recover: nobody is there to confirm: Request.Events is nil")
	}
	req.patience, req.proveTimeout, req.lateTimeout = cmp.Or(req.patience, patience), cmp.Or(req.proveTimeout, proveTimeout), cmp.Or(req.lateTimeout, serve.DefaultGrace)
	req.election, req.watchAfter = cmp.Or(req.election, electionTime), cmp.Or(req.watchAfter, watchAfter)
	d := &coordinator{id: randomHex(8), req: req, cfg: req.Config, reporter: &reporter{events: req.Events}, logger: req.Logger}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if lock && req.Local == nil {
		if d.lock, err = host.Lock(d.cfg.File()); err != nil {
			return nil, fmt.Errorf("the cluster file: %w", err)
		}
	}
	if _, err := d.identities(); err != nil { // before anything is stopped
		return nil, err
	}
	lines := Lines(d.req, d.image.Load) // no command is started yet
	for i, h := range d.cfg.Hosts {
		d.hosts = append(d.hosts, &participant{HostConfig: h, line: lines[i], client: lines[i].As("")})
	}
	return d, nil
}

// close ends the conversations, and forgets what was read.
func (d *coordinator) close() (err error) {
	for _, h := range d.hosts {
		h.line.Close()
		err = errors.Join(err, h.forget())
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
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

// setRun says of which run the command is. A decision of it may not be made yet.
func (d *coordinator) setRun(id string, dec *decision) {
	d.run, d.decision, d.continued = id, dec, dec != nil
	for _, h := range d.hosts {
		h.client = h.line.As(id).By(d.id)
	}
}

// Lines makes the hosts of a request, in their order: each can be asked, and can fetch the database
// that another has built, or the coordinator. The caller closes each.
func Lines(req Request, image func() *os.File) []*host.Remote {
	cfg := req.Config
	lines := map[string]*host.Remote{}
	fetch := func(ctx context.Context, a host.FetchArguments, w io.Writer) (*host.Sent, error) {
		if f := image(); a.Member == "" && f != nil {
			info, err := f.Stat()
			if err != nil {
				return nil, err
			}
			return host.SendPiece(ctx, f, info.Size(), &a.DataArguments, w)
		}
		from := lines[a.Member]
		if from == nil {
			return nil, fmt.Errorf("the cluster file has no host of member %q", a.Member)
		}
		return from.As("").Data(ctx, a.DataArguments, w)
	}
	var all []*host.Remote
	for _, h := range cfg.Hosts {
		cfgOfHost := &host.Config{Member: h.MemberConfig, Clients: h.Clients, StateDir: h.StateDir}
		o := host.RemoteOptions{Member: h.Member, Command: append(h.Command(), h.Requorum, "host"), Config: cfgOfHost, Version: req.Version, Fetch: fetch}
		if h.Kind == supervisor.None {
			o.Here = &host.Options{Version: req.Version, Logger: req.Logger, CheckBase: req.CheckBase}
		}
		line := host.NewRemote(o)
		lines[h.Member], all = line, append(all, line)
	}
	return all
}

// host gives the one of a member; nil where the cluster file has none.
func (d *coordinator) host(member string) *participant {
	i := slices.IndexFunc(d.hosts, func(h *participant) bool { return h.Member == member })
	if i < 0 {
		return nil
	}
	return d.hosts[i]
}

// places are the directories on this machine, by member.
func (d *coordinator) places() map[string]sources.Directories {
	all := map[string]sources.Directories{}
	for _, h := range d.cfg.Hosts {
		if h.Kind == supervisor.None {
			all[h.Member] = sources.Directories{DataDir: h.DataDir, WALDir: h.WALDir}
		}
	}
	return all
}

// present are the hosts that work is done on: those that answer.
func (d *coordinator) present() []*participant {
	return slices.DeleteFunc(slices.Clone(d.hosts), func(h *participant) bool { return h.state.Unreachable != "" })
}

// getting are the hosts that get a member of the new cluster.
func (d *coordinator) getting() []*participant {
	var all []*participant
	for _, m := range d.decision.Members {
		if h := d.host(m.Name); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// reached is the first phase that is not done.
func (d *coordinator) reached() Phase {
	switch {
	case d.decision.Proved != nil:
		return PhaseResume
	case d.decision.Built != nil:
		return PhaseStart
	case d.anyAside():
		return PhaseSetAside
	}
	return PhaseQuiesce
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
