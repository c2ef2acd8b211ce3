package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore/recovery/supervisor"
)

// quiesce stops the host's clients, in their order, but those that are only to be
// restarted. The state file has first which of all of them ran: to stop one can make
// others fail.
func (h *host) quiesce(ctx context.Context, _ Header, _ *none) (*Done, error) {
	if len(h.Clients) == 0 {
		return &Done{}, nil
	}
	if err := h.rememberClients(ctx); err != nil {
		return nil, err
	}
	for _, c := range h.Clients {
		if c.Config.Restart {
			// A resume that was broken off, before this, may have restarted it.
			if h.State.Client(c.Config.Name).Phase != "" {
				if err := h.clientAt(c, ""); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := h.stopClient(ctx, c); err != nil {
			return nil, refused(Failed, fmt.Errorf("client %s is not stopped: %w", c.Config.Name, err))
		}
	}
	return &Done{Clients: h.clientStates(ctx)}, nil
}

// rememberClients writes down the states of those clients that are not known yet.
func (h *host) rememberClients(ctx context.Context) error {
	known := len(h.State.Clients)
	for _, c := range h.Clients {
		if h.State.Client(c.Config.Name) != nil {
			continue
		}
		ran, err := c.Wanted(ctx)
		if err != nil {
			return fmt.Errorf("client %s: whether it runs: %w", c.Config.Name, err)
		}
		h.State.Clients = append(h.State.Clients, clientRecord{Name: c.Config.Name, Ran: ran})
	}
	if len(h.State.Clients) == known {
		return nil
	}
	return h.State.save()
}

// stopClient stops a client, also one that did not run before: somebody may have
// started it since.
func (h *host) stopClient(ctx context.Context, c supervisor.Client) error {
	if h.State.Client(c.Config.Name).Phase == ClientStopped && c.Stopped(ctx) == nil {
		return nil
	}
	if err := h.clientAt(c, ClientStopping); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, "stop", time.Duration(c.Config.StopTimeout))
	defer cancel()
	if err := c.Stop(limited); err != nil {
		return err
	}
	return h.clientAt(c, ClientStopped)
}

// resume starts what a quiesce stopped, in the reverse order, and then restarts what
// is to be restarted, in its order.
func (h *host) resume(ctx context.Context, _ Header, _ *none) (*Done, error) {
	switch {
	case len(h.State.Clients) == 0 && len(h.Clients) == 0:
		return &Done{}, nil
	case len(h.State.Clients) == 0:
		return &Done{
			Clients:  h.clientStates(ctx),
			Warnings: []string{"nothing was resumed: the clients of this host are not quiesced, or were resumed before"},
		}, nil
	}
	for _, k := range h.State.Clients {
		if h.client(k.Name) == nil {
			return nil, refused(BadRequest, fmt.Errorf("client %s was quiesced, and is not in the cluster file any more: write it there again", k.Name))
		}
	}
	done := &Done{}
	for _, c := range h.resumeOrder() {
		k := h.State.Client(c.Config.Name)
		switch {
		case k == nil || k.Phase == ClientStarted || k.Phase == ClientRestarted:
			continue // never touched, or done before
		case !k.Ran:
			if err := h.clientAt(c, ClientLeft); err != nil {
				return nil, err
			}
			done.Warnings = append(done.Warnings, fmt.Sprintf("client %s did not run before the recovery, and was not started", k.Name))
			continue
		}
		if err := h.resumeClient(ctx, c); err != nil {
			return nil, refused(Failed, fmt.Errorf("client %s is not resumed: %w", k.Name, err))
		}
	}
	done.Clients = h.clientStates(ctx)
	h.State.Clients = nil
	return done, h.State.save()
}

func (h *host) resumeOrder() []supervisor.Client {
	var start, restart []supervisor.Client
	for _, c := range h.Clients {
		if c.Config.Restart {
			restart = append(restart, c)
		} else {
			start = append(start, c)
		}
	}
	slices.Reverse(start)
	return append(start, restart...)
}

func (h *host) resumeClient(ctx context.Context, c supervisor.Client) error {
	begun, done, act := ClientStarting, ClientStarted, c.Start
	if c.Config.Restart {
		begun, done, act = ClientRestarting, ClientRestarted, c.Restart
	}
	if err := h.clientAt(c, begun); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, "start", timeout(c, begun))
	defer cancel()
	if err := act(limited); err != nil {
		return err
	}
	return h.clientAt(c, done)
}

func (h *host) clientAt(c supervisor.Client, phase ClientPhase) error {
	h.Logger.Info("a client of the cluster", "client", c.Config.Name, "phase", phase)
	h.State.Client(c.Config.Name).Phase = phase
	return h.State.save()
}

func (h *host) client(name string) *supervisor.Client {
	for i := range h.Clients {
		if h.Clients[i].Config.Name == name {
			return &h.Clients[i]
		}
	}
	return nil
}

// clientStates looks at all clients, at once: each may have to ask a program.
func (h *host) clientStates(ctx context.Context) []ClientState {
	states := make([]ClientState, len(h.Clients))
	var all sync.WaitGroup
	for i, c := range h.Clients {
		all.Go(func() { states[i] = clientState(ctx, c) })
	}
	all.Wait()
	for i := range states {
		if k := h.State.Client(states[i].Name); k != nil {
			states[i].Phase, states[i].Ran, states[i].Timeout = k.Phase, &k.Ran, timeout(h.Clients[i], k.Phase)
		}
	}
	return states
}

// clientState is that of a client as of now.
func clientState(ctx context.Context, c supervisor.Client) ClientState {
	state := ClientState{Name: c.Config.Name, Kind: c.Config.Kind, Restart: c.Config.Restart}
	if err := c.Stopped(ctx); err != nil {
		state.Why, state.Runs = err.Error(), errors.Is(err, supervisor.ErrRuns)
	} else {
		state.Stopped = true
	}
	return state
}

// timeout is what a phase that is under way may take at most.
func timeout(c supervisor.Client, phase ClientPhase) time.Duration {
	switch phase {
	case ClientStopping:
		return time.Duration(c.Config.StopTimeout)
	case ClientStarting:
		return time.Duration(c.Config.StartTimeout)
	case ClientRestarting:
		return time.Duration(c.Config.StopTimeout + c.Config.StartTimeout)
	default:
		return 0
	}
}
