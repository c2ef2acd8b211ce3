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
func (h *host) quiesce(ctx context.Context, a Header, how *quiesceArguments) (*Done, error) {
	if len(h.Clients) == 0 {
		return &Done{}, nil
	}
	if by := h.State.Resumed; by != "" { // stored with the first client's phase
		if h.State.Resumed = ""; by != a.Run {
			h.State.Clients = nil
		}
		for i := range h.State.Clients {
			h.State.Clients[i].Phase = ""
		}
	}
	if err := h.rememberClients(ctx); err != nil {
		return nil, err
	}
	done := &Done{}
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
		killed, err := h.stopClient(ctx, c, how.Kill)
		if err != nil {
			return nil, refused(Failed, fmt.Errorf("client %s is not stopped: %w", c.Config.Name, err))
		}
		if killed {
			done.Warnings = append(done.Warnings, fmt.Sprintf("client %s did not end within %s, and was killed", c.Config.Name, killAfter))
		}
	}
	done.Clients = h.clientStates(ctx)
	return done, nil
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
func (h *host) stopClient(ctx context.Context, c supervisor.Client, kill bool) (killed bool, err error) {
	if h.State.Client(c.Config.Name).Phase == ClientStopped && c.Stopped(ctx) == nil {
		return false, nil
	}
	if err := h.clientAt(c, ClientStopping); err != nil {
		return false, err
	}
	limited, cancel := withTimeout(ctx, "stop", time.Duration(c.Config.StopTimeout))
	defer cancel()
	if kill {
		killed, err = stopOrKill(limited, c)
	} else {
		err = c.Stop(limited)
	}
	if err != nil {
		return killed, err
	}
	return killed, h.clientAt(c, ClientStopped)
}

// killAfter is how long a client without a quorum may take to end. An API server waits for a
// minute for requests that nobody answers.
const killAfter = 5 * time.Second

// stopOrKill stops a client, and kills it if that takes long. A kubelet that has not noticed
// yet may start it again.
func stopOrKill(ctx context.Context, c supervisor.Client) (killed bool, err error) {
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(ctx) }()
	var failed error
	for {
		select {
		case err := <-stopped:
			if err != nil {
				err = errors.Join(err, failed)
			}
			return killed, err
		case <-time.After(killAfter):
			var is bool
			is, failed = c.Kill(ctx)
			killed = killed || is
		}
	}
}

// resume starts clients, in the reverse of the order in which a quiesce stops them, and
// then restarts those that are to be restarted, in their order: all of them, or those
// that ran before the quiesce. One that does not start does not keep the others down.
func (h *host) resume(ctx context.Context, a Header, want *resumeArguments) (*Done, error) {
	for _, k := range h.State.Clients {
		if h.client(k.Name) == nil {
			return nil, refused(BadRequest, fmt.Errorf("client %s was quiesced, and is not in the cluster file any more: write it there again", k.Name))
		}
	}
	if want.All {
		if err := h.rememberClients(ctx); err != nil { // also those that the cluster file has got since
			return nil, err
		}
		h.State.Resumed = a.Run
	}
	done := &Done{}
	var failed []error
	for _, c := range h.resumeOrder() {
		k := h.State.Client(c.Config.Name)
		switch {
		case k == nil, k.resumed() && c.Stopped(ctx) != nil:
			continue // never touched, or done before
		case !k.Ran && !want.All:
			if err := h.clientAt(c, ClientLeft); err != nil {
				return nil, err
			}
			done.Warnings = append(done.Warnings, fmt.Sprintf("client %s did not run before the recovery, and was not started", k.Name))
			continue
		}
		if err := h.resumeClient(ctx, c); err != nil {
			failed = append(failed, fmt.Errorf("client %s is not started: %w", k.Name, err))
		}
	}
	done.Clients = h.clientStates(ctx)
	for _, c := range done.Clients {
		if k := h.State.Client(c.Name); k != nil && k.resumed() && c.Stopped {
			failed = append(failed, fmt.Errorf("client %s was started, and has ended since: its log shows why", c.Name))
		}
	}
	if len(failed) > 0 {
		return nil, refused(Failed, joinedBy("; ", failed))
	}
	if !want.All {
		h.State.Clients, h.State.Resumed = nil, ""
	}
	return done, h.State.save()
}

// joinedBy is errors.Join in one line.
func joinedBy(sep string, errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w%s%w", all, sep, err)
	}
	return all
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
