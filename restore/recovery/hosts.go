package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
)

// askTimeout bounds a question about a host's state.
const askTimeout = 20 * time.Second

// participant is one of the cluster file's, as it was found.
type participant struct {
	HostConfig
	line    *host.Remote
	client  *host.Client // on that, in the name of the run
	state   HostState
	empty   bool     // it holds no data of a member
	summary string   // the file of its summary; empty where there is none
	read    surveyed // what that is of
	failed  error    // why it could not be surveyed
	asides  []restore.Aside
}

// passedBy: it is gone for good, as the operator says.
func (h *participant) passedBy() bool { return h.state.Dead && h.state.Unreachable != "" }

// lost: it cannot be reached, and nobody says that it is gone.
func (h *participant) lost() bool { return !h.state.Dead && h.state.Unreachable != "" }

// states asks all hosts at the same time.
func (d *coordinator) states(ctx context.Context) error {
	var all sync.WaitGroup
	for _, h := range d.hosts {
		all.Go(func() { d.hostState(ctx, h) })
	}
	all.Wait()
	for _, h := range d.hosts {
		// Where the run has been at work an undo passes by nothing but what it is told
		// now: it may be the new host of a dead member's name.
		been := d.takesBack && d.state.done(PhaseFence, h.Member)
		h.state.Dead = !been && slices.Contains(d.dead(), h.Member) || slices.Contains(d.req.DeclareDead, h.Member)
	}
	return ctx.Err()
}

// dead are the old members that never will start again, by what the operator says.
func (d *coordinator) dead() []string {
	if d.state.decision != nil {
		return d.state.decision.Asked.DeclareDead
	}
	return d.req.DeclareDead
}

func (d *coordinator) hostState(ctx context.Context, h *participant) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errors.New("no answer within "+askTimeout.String()))
	defer cancel()
	h.state = HostState{Member: h.Member, Address: h.Address()}
	m, err := h.client.Member(ctx)
	if err != nil {
		h.state.Unreachable, h.state.Answers = err.Error(), host.Answered(err)
		return
	}
	h.state.Kind, h.state.DataDir, h.state.Holder, h.state.Clients, h.state.Faults = m.Kind, m.DataDir, m.Run, m.Clients, m.Faults
	h.state.Stopped, h.state.Runs = m.Stopped != nil, m.Runs
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
func (d *coordinator) holders() *ConflictError {
	held := &ConflictError{}
	for _, h := range d.hosts {
		r := h.state.Holder
		if r == "" || r == d.run || d.ended(r) || d.state.decision != nil && slices.Contains(d.state.decision.TakesOver, r) {
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
func (d *coordinator) takeHold() {
	for _, h := range d.hosts {
		r := h.state.Holder
		if r == "" || r == d.run {
			continue
		}
		h.client = h.line.As(d.run, r)
	}
}

// survey of what a host has: whose set-aside, or empty for the member's directories.
func (d *coordinator) of(h *participant) string {
	if slices.Contains(h.state.Aside, d.run) {
		return d.run
	}
	if d.state.decision != nil {
		for _, r := range d.state.decision.TakesOver {
			if heldAside(h, r) {
				return r
			}
		}
	} else if r := h.state.Holder; d.req.TakeOver && !d.ended(r) && heldAside(h, r) {
		return r
	}
	return ""
}

// heldAside reports whether a run has set data aside on a host, and still has the host:
// once it let it go, its new member may have taken writes.
func heldAside(h *participant, run string) bool {
	return run != "" && h.state.Holder == run && slices.Contains(h.state.Aside, run)
}

func isRefusal(err error, code host.Code) bool {
	var refused *host.RefusedError
	return errors.As(err, &refused) && refused.Refusal.Code == code
}

const (
	// watchAfter is how long an action on a host may take until it is told what is
	// waited for there, and watchEvery how often that is repeated: a kubelet may need
	// two minutes to take a pod down.
	watchAfter = 2 * time.Second
	watchEvery = 15 * time.Second
)

// patiently says what a host waits for, and how long at most, while an action goes
// on there; the caller calls ended once it does not any more.
func (d *coordinator) patiently(ctx context.Context, p Phase, h *participant) (ended func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		for wait := d.watchAfter; pause(ctx, wait) == nil; wait = watchEvery {
			m, err := h.client.Member(ctx)
			if err != nil {
				continue // who acts finds out, and tells
			}
			if text := waitsFor(p, m); text != "" && ctx.Err() == nil {
				d.reporter.waiting(p, fmt.Sprintf("%s: %s (%s so far)", h.Member, text, time.Since(began).Round(time.Second)))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// waitsFor says whom the action of a phase waits for on a host; empty where nothing
// tells.
func waitsFor(p Phase, m *host.Member) string {
	switch p {
	case PhaseQuiesce, PhaseUndoQuiesce, PhaseResume, PhaseUndoResume:
		i := slices.IndexFunc(m.Clients, func(c host.ClientState) bool { return c.Timeout > 0 })
		if i < 0 {
			return ""
		}
		c := m.Clients[i]
		text := fmt.Sprintf("client %s is %s, for which it gets %s at most", c.Name, c.Phase, c.Timeout)
		if c.Phase == host.ClientStopping && c.Why != "" {
			text += ": " + c.Why
		}
		return text
	case PhaseFence, PhaseUndoStop:
		if m.NotStopped != "" {
			return fmt.Sprintf("the member is stopping, for which it gets %s at most: %s", m.StopTimeout, m.NotStopped)
		}
	case PhaseStart, PhaseUndoStart:
		return fmt.Sprintf("the member is starting, for which it gets %s at most", m.StartTimeout)
	default:
	}
	return ""
}
