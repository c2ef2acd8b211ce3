package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/clients"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// quiesce stops the host's clients, in their order, but those that are only to be
// restarted. The journal has first which of all of them ran: to stop one can make
// others fail.
func (s *server) quiesce(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	if len(s.Clients) == 0 {
		return &protocol.Done{}, nil
	}
	if err := s.rememberClients(ctx, a.Run); err != nil {
		return nil, err
	}
	for _, c := range s.Clients {
		if c.Config.Restart {
			// A resume that was broken off, before this, may have restarted it.
			if s.Journal.Quiesce().Client(c.Config.Name).Phase != "" {
				if err := s.clientAt(a.Run, c, ""); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := s.stopClient(ctx, a.Run, c); err != nil {
			return nil, fmt.Errorf("client %s is not stopped: %w", c.Config.Name, err)
		}
	}
	return &protocol.Done{Clients: s.clientStates(ctx, s.Journal.Quiesce())}, nil
}

// rememberClients gives the clients to the run, with the states of those that are
// not known yet.
func (s *server) rememberClients(ctx context.Context, run string) error {
	known := s.Journal.Quiesce()
	e := journal.Entry{Run: run, Step: journal.Quiescing}
	for _, c := range s.Clients {
		if known != nil && known.Client(c.Config.Name) != nil {
			continue
		}
		ran, err := c.Wanted(ctx)
		if err != nil {
			return fmt.Errorf("client %s: whether it runs: %w", c.Config.Name, err)
		}
		e.Clients = append(e.Clients, journal.Client{Name: c.Config.Name, Ran: ran})
	}
	if known != nil && known.Run == run && len(e.Clients) == 0 {
		return nil
	}
	return s.Journal.Add(e)
}

// stopClient stops a client, also one that did not run before: somebody may have
// started it since.
func (s *server) stopClient(ctx context.Context, run string, c clients.Client) error {
	if s.Journal.Quiesce().Client(c.Config.Name).Phase == protocol.ClientStopped {
		if _, err := c.Stopped(ctx); err == nil {
			return nil
		}
	}
	if err := s.clientAt(run, c, protocol.ClientStopping); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, "stop", time.Duration(c.Config.StopTimeout))
	defer cancel()
	if err := c.Stop(limited); err != nil {
		return err
	}
	return s.clientAt(run, c, protocol.ClientStopped)
}

// resume starts what a quiesce stopped, in the reverse order, and then restarts what
// is to be restarted, in its order.
func (s *server) resume(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	known := s.Journal.Quiesce()
	switch {
	case known == nil && len(s.Clients) == 0:
		return &protocol.Done{}, s.letGo(a.Run)
	case known == nil:
		return &protocol.Done{
			Clients:  s.clientStates(ctx, nil),
			Warnings: []string{"nothing was resumed: the clients of this host are not quiesced, or were resumed before"},
		}, s.letGo(a.Run)
	}
	for _, k := range known.Clients {
		if s.client(k.Name) == nil {
			return nil, refused(protocol.BadRequest, fmt.Errorf("client %s was quiesced by run %s, and is not in the configuration any more: write it there again", k.Name, known.Run))
		}
	}
	if known.Run != a.Run { // which it takes over from
		if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Quiescing}); err != nil {
			return nil, err
		}
	}
	done := &protocol.Done{}
	for _, c := range s.resumeOrder() {
		k := known.Client(c.Config.Name)
		switch {
		case k == nil || k.Phase == protocol.ClientStarted || k.Phase == protocol.ClientRestarted:
			continue // never touched, or done before
		case !k.Ran:
			if err := s.clientAt(a.Run, c, protocol.ClientLeft); err != nil {
				return nil, err
			}
			done.Warnings = append(done.Warnings, fmt.Sprintf("client %s did not run before the recovery, and was not started", k.Name))
			continue
		}
		if err := s.resumeClient(ctx, a.Run, c); err != nil {
			return nil, fmt.Errorf("client %s is not resumed: %w", k.Name, err)
		}
	}
	done.Clients = s.clientStates(ctx, s.Journal.Quiesce())
	if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Resumed}); err != nil {
		return nil, err
	}
	return done, s.letGo(a.Run)
}

// letGo ends the run's hold of a member that it did not start: a resume is the last
// that a run does on a host.
func (s *server) letGo(run string) error {
	if !s.Journal.Holds(run) {
		return nil
	}
	return s.Journal.Add(journal.Entry{Run: run, Step: journal.Released})
}

func (s *server) resumeOrder() []clients.Client {
	var start, restart []clients.Client
	for _, c := range s.Clients {
		if c.Config.Restart {
			restart = append(restart, c)
		} else {
			start = append(start, c)
		}
	}
	slices.Reverse(start)
	return append(start, restart...)
}

func (s *server) resumeClient(ctx context.Context, run string, c clients.Client) error {
	begun, done, act := protocol.ClientStarting, protocol.ClientStarted, c.Start
	if c.Config.Restart {
		begun, done, act = protocol.ClientRestarting, protocol.ClientRestarted, c.Restart
	}
	if err := s.clientAt(run, c, begun); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, "start", timeout(c, begun))
	defer cancel()
	if err := act(limited); err != nil {
		return err
	}
	return s.clientAt(run, c, done)
}

func (s *server) clientAt(run string, c clients.Client, phase protocol.ClientPhase) error {
	s.Logger.Info("a client of the cluster", "client", c.Config.Name, "phase", phase, "run", run)
	k := s.Journal.Quiesce().Client(c.Config.Name)
	return s.Journal.Add(journal.Entry{Run: run, Step: journal.ClientAt, Clients: []journal.Client{{Name: k.Name, Ran: k.Ran, Phase: phase}}})
}

func (s *server) client(name string) *clients.Client {
	for i := range s.Clients {
		if s.Clients[i].Config.Name == name {
			return &s.Clients[i]
		}
	}
	return nil
}

// clientStates looks at all clients, at once: each may have to ask a program.
func (s *server) clientStates(ctx context.Context, known *journal.Quiesce) []protocol.ClientState {
	states := make([]protocol.ClientState, len(s.Clients))
	var all sync.WaitGroup
	for i, c := range s.Clients {
		all.Go(func() { states[i] = c.Look(ctx) })
	}
	all.Wait()
	if known != nil {
		for i := range states {
			if k := known.Client(states[i].Name); k != nil {
				states[i].Phase, states[i].Ran, states[i].Timeout = k.Phase, &k.Ran, timeout(s.Clients[i], k.Phase)
			}
		}
	}
	return states
}

// timeout is what a phase that is under way may take at most.
func timeout(c clients.Client, phase protocol.ClientPhase) time.Duration {
	switch phase {
	case protocol.ClientStopping:
		return time.Duration(c.Config.StopTimeout)
	case protocol.ClientStarting:
		return time.Duration(c.Config.StartTimeout)
	case protocol.ClientRestarting:
		return time.Duration(c.Config.StopTimeout + c.Config.StartTimeout)
	default:
		return 0
	}
}

// triedClients looks whether each client could be stopped and started.
func triedClients(ctx context.Context, all []clients.Client) error {
	var faults []error
	for _, c := range all {
		if err := c.Check(ctx); err != nil {
			faults = append(faults, fmt.Errorf("client %s (%s) cannot be quiesced: %w", c.Config.Name, c.Config.Kind, err))
		}
	}
	return errors.Join(faults...)
}
