package clients

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/schedule/control/supervisor"
)

// systemd is a client that is a unit.
type systemd struct {
	evidence
	unit supervisor.Unit
}

// Check asks whether the unit is loaded, and looks for its process.
func (s *systemd) Check(ctx context.Context) error {
	if err := s.unit.Check(ctx); err != nil {
		return err
	}
	state, err := s.unit.State(ctx)
	if err != nil {
		return err
	}
	if state.Active == "active" && state.MainPID != "0" {
		return s.visible("unit " + s.unit.Name + " has process " + state.MainPID)
	}
	return s.visible("")
}

// Wanted tells whether the unit is up, or on its way there. What has failed for
// good, or is being stopped, somebody has to start.
func (s *systemd) Wanted(ctx context.Context) (bool, error) {
	state, err := s.unit.State(ctx)
	if err != nil {
		return false, err
	}
	switch state.Active {
	case "active", "activating", "reloading", "refreshing":
		return true, nil
	}
	return false, nil
}

// Stopped asks systemd, then the process table.
func (s *systemd) Stopped(ctx context.Context) ([]string, error) {
	state, err := s.unit.State(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	case !state.Stopped():
		return nil, fmt.Errorf("%w: unit %s is %s (%s), process %s", ErrRuns, s.unit.Name, state.Active, state.Sub, state.MainPID)
	case state.Load != "loaded" && state.Load != "masked":
		// Whatever is not there is inactive too.
		return nil, fmt.Errorf("%w: unit %s is %s", ErrUnproven, s.unit.Name, state.Load)
	}
	seen, err := s.gone()
	if err != nil {
		return nil, err
	}
	return append([]string{fmt.Sprintf("systemd says that unit %s is %s and has no process", s.unit.Name, state.Active)}, seen...), nil
}

// Stop stops the unit, also where it is stopped: a restart that systemd has planned
// is called off.
func (s *systemd) Stop(ctx context.Context) error {
	if err := s.unit.Stop(ctx); err != nil {
		return err
	}
	return waitStopped(ctx, s.Stopped)
}

// Start starts the unit, and gives up where systemd does.
func (s *systemd) Start(ctx context.Context) error {
	state, err := s.unit.State(ctx)
	if err != nil {
		return err
	}
	if state.Active != "active" {
		if err := s.unit.Start(ctx); err != nil {
			return err
		}
	}
	return s.up(ctx, "0")
}

// Restart restarts the unit, and waits until it has another process.
func (s *systemd) Restart(ctx context.Context) error {
	before, err := s.unit.State(ctx)
	if err != nil {
		return err
	}
	if err := s.unit.Restart(ctx); err != nil {
		return err
	}
	return s.up(ctx, before.MainPID)
}

// up waits until the unit is active, with another process than an old one.
func (s *systemd) up(ctx context.Context, old string) error {
	return supervisor.Until(ctx, func() error {
		state, err := s.unit.State(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if err := s.unit.Failed(state); err != nil {
			return err
		}
		if state.Active != "active" || state.MainPID == old && old != "0" {
			return fmt.Errorf("unit %s is %s (%s), process %s", s.unit.Name, state.Active, state.Sub, state.MainPID)
		}
		return s.started()
	})
}
