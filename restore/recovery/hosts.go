package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
)

// askTimeout bounds a question about a host's state. A variable for tests.
var askTimeout = 20 * time.Second

// participant is one of the cluster file's, as it was found.
type participant struct {
	HostConfig
	line       *host.Remote
	client     *host.Client // on that, in the name of the run
	state      HostState
	decisions  []host.Decision // that it has stored
	built      string          // the plan by which it has built its member
	empty      bool            // it holds no data of a member
	summary    *os.File        // nil where there is none
	read       string          // the sum over the files that this is of
	failed     error           // why it could not be surveyed
	notStopped string          // why it is not proved that the member is stopped
	asides     []host.SetAside
	undone     []string // the runs that it has taken back
	undo       HostUndo // what an undo did
}

// forget gives up what was read of a host's data.
func (h *participant) forget() error {
	if h.summary == nil {
		return nil
	}
	err := h.summary.Close()
	h.summary, h.read = nil, ""
	return err
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
	d.markDead()
	return ctx.Err()
}

// markDead is done anew once the decision is found.
func (d *coordinator) markDead() {
	dead := d.asked().DeclareDead
	for _, h := range d.hosts {
		// Where the run has been at work an undo passes by nothing but what is named
		// now: it may be the new host of a dead member's name.
		been := d.takesBack && d.decision != nil && slices.Contains(d.decision.Hosts, decidedHost{h.Member, true})
		h.state.Dead = !been && slices.Contains(dead, h.Member) || slices.Contains(d.req.DeclareDead, h.Member)
	}
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
	h.state.Kind, h.state.DataDir, h.state.Clients, h.state.Faults = h.Kind, h.DataDir, m.Clients, m.Faults
	h.state.Stopped, h.state.Runs, h.notStopped = m.Stopped, m.Runs, m.NotStopped
	if !m.Stopped && !m.Runs {
		h.state.Unclear = m.NotStopped
	}
	h.asides, h.undone, h.decisions, h.built = m.Aside, m.Undone, m.Decisions, m.Built
	for _, a := range m.Aside {
		h.state.Aside = append(h.state.Aside, a.Run)
	}
}

// aside is what a run has set aside on a host, or began to; nil where it has not.
func (h *participant) aside(run string) *host.SetAside {
	i := slices.IndexFunc(h.asides, func(a host.SetAside) bool { return a.Run == run })
	if i < 0 {
		return nil
	}
	return &h.asides[i]
}

// touched reports whether the host knows that a run set data aside there, which it may have
// put back since.
func (h *participant) touched(run string) bool {
	return h.aside(run) != nil || slices.Contains(h.undone, run)
}

// anyAside reports whether the run has set data aside on a host, or began to.
func (d *coordinator) anyAside() bool {
	return slices.ContainsFunc(d.hosts, func(h *participant) bool { return h.aside(d.run) != nil })
}

func isRefusal(err error, code host.Code) bool {
	var refused *host.RefusedError
	return errors.As(err, &refused) && refused.Refusal.Code == code
}

const (
	// watchAfter is how long an action on a host may take until it is reported what is
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
		for wait := d.req.watchAfter; pause(ctx, wait) == nil; wait = watchEvery {
			m, err := h.client.Member(ctx)
			if err != nil {
				continue // who acts finds out, and reports it
			}
			if text := waitsFor(p, h, m); text != "" && ctx.Err() == nil {
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
// shows it.
func waitsFor(p Phase, h *participant, m *host.Member) string {
	client := slices.IndexFunc(m.Clients, func(c host.ClientState) bool { return c.Timeout > 0 })
	switch p {
	case PhaseQuiesce, PhaseResume, PhaseUndoResume, PhaseFence, PhaseUndoStop:
		if client >= 0 {
			c := m.Clients[client]
			text := fmt.Sprintf("client %s is %s, for which it gets %s at most", c.Name, c.Phase, c.Timeout)
			if c.Phase == host.ClientStopping && c.Why != "" {
				text += ": " + c.Why
			}
			return text
		}
		if m.NotStopped != "" && (p == PhaseFence || p == PhaseUndoStop) {
			return fmt.Sprintf("the member is stopping, for which it gets %s at most: %s", time.Duration(h.StopTimeout), m.NotStopped)
		}
	case PhaseStart, PhaseUndoStart:
		return fmt.Sprintf("the member is starting, for which it gets %s at most", time.Duration(h.StartTimeout))
	default:
	}
	return ""
}
