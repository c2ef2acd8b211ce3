package rescue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
)

// askTimeout bounds a question about a host's state.
const askTimeout = 20 * time.Second

// host is one of the cluster file's, as it was found.
type host struct {
	config.Host
	client *client.Client
	state  HostState
	empty  bool     // it holds no data of a member
	digest string   // the file of its digest; empty where there is none
	read   surveyed // what that is of
	failed error    // why it could not be surveyed
	asides []restore.Aside
}

// passedBy: it is gone for good, as the operator says.
func (h *host) passedBy() bool { return h.state.Dead && h.state.Unreachable != "" }

// lost: it cannot be reached, and nobody says that it is gone.
func (h *host) lost() bool { return !h.state.Dead && h.state.Unreachable != "" }

// states asks all hosts at the same time.
func (d *driver) states(ctx context.Context) error {
	var all sync.WaitGroup
	for _, h := range d.hosts {
		all.Go(func() { d.state(ctx, h) })
	}
	all.Wait()
	for _, h := range d.hosts {
		// Where the run has been at work an undo passes by nothing but what it is told
		// now: it may be the new host of a dead member's name.
		been := d.takesBack && d.known.done(PhaseFence, h.Member)
		h.state.Dead = !been && slices.Contains(d.dead(), h.Member) || slices.Contains(d.req.DeclareDead, h.Member)
	}
	return ctx.Err()
}

// dead are the old members that never will start again, by what the operator says.
func (d *driver) dead() []string {
	if d.known.decision != nil {
		return d.known.decision.Asked.DeclareDead
	}
	return d.req.DeclareDead
}

func (d *driver) state(ctx context.Context, h *host) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errors.New("no answer within "+askTimeout.String()))
	defer cancel()
	h.state = HostState{Member: h.Member, Address: h.Control}
	m, err := h.client.Member(ctx, false)
	if err != nil {
		h.state.Unreachable, h.state.Answers = err.Error(), client.Answered(err)
		return
	}
	h.state.Kind, h.state.DataDir, h.state.Holder, h.state.Manual, h.state.Clients = m.Kind, m.DataDir, m.Run, m.Manual, m.Clients
	h.state.Stopped, h.state.Runs, h.state.Flags = m.Stopped != nil, m.Runs, m.Flags
	if m.Stopped == nil && !m.Runs {
		h.state.Unclear = m.NotStopped
	}
	h.asides = m.Aside
	for _, a := range m.Aside {
		h.state.Aside = append(h.state.Aside, a.Run)
	}
}

// holders are the runs elsewhere that have hosts: neither this one, nor one of this
// state folder that is over.
func (d *driver) holders() *HeldError {
	held := &HeldError{}
	for _, h := range d.hosts {
		r := h.state.Holder
		if r == "" || r == d.run || d.ended(r) || d.known.decision != nil && slices.Contains(d.known.decision.TakesOver, r) {
			continue
		}
		if held.Holder == "" || held.Holder == r {
			held.Holder = r
		}
		held.Hosts = append(held.Hosts, h.Member)
	}
	if len(held.Hosts) == 0 {
		return nil
	}
	return held
}

// takeHold makes the clients anew of hosts that another run has which is over, or
// is taken over from: they have to name it.
func (d *driver) takeHold() error {
	for _, h := range d.hosts {
		r := h.state.Holder
		if r == "" || r == d.run {
			continue
		}
		c, err := d.client(h.Host, d.run, r)
		if err != nil {
			return err
		}
		h.client.Close()
		h.client = c
	}
	return nil
}

// survey of what a host has: whose set-aside, or empty for the member's directories.
func (d *driver) of(h *host) string {
	if slices.Contains(h.state.Aside, d.run) {
		return d.run
	}
	if d.known.decision != nil {
		for _, r := range d.known.decision.TakesOver {
			if heldAside(h, r) {
				return r
			}
		}
	} else if r := h.state.Holder; d.req.TakeOver && !d.ended(r) && heldAside(h, r) {
		return r
	}
	return ""
}

// heldAside tells whether a run has set data aside on a host, and still has the host:
// once it let it go, its new member may have taken writes.
func heldAside(h *host, run string) bool {
	return run != "" && h.state.Holder == run && slices.Contains(h.state.Aside, run)
}

func isRefusal(err error, code protocol.Code) bool {
	var refused *client.RefusedError
	return errors.As(err, &refused) && refused.Code == code
}
