package member

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/schedule/control/supervisor"
)

// systemd is a member that is a unit.
type systemd struct {
	evidence
	unit supervisor.Unit
}

// Check asks whether the unit is loaded.
func (s *systemd) Check(ctx context.Context) error { return s.unit.Check(ctx) }

// Stopped asks systemd, then the locks and the process table.
func (s *systemd) Stopped(ctx context.Context) (*Proof, error) {
	state, err := s.unit.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if !state.Stopped() {
		return nil, fmt.Errorf("%w: unit %s is %s (%s), process %s", ErrRuns, s.unit.Name, state.Active, state.Sub, state.MainPID)
	}
	proof, err := s.stopped()
	if err == nil {
		proof.Found = append(proof.Found, fmt.Sprintf("systemd says that unit %s is %s and has no process", s.unit.Name, state.Active))
	}
	return proof, err
}

// Stop stops the unit, also where it is stopped: a restart that systemd has planned
// is called off.
func (s *systemd) Stop(ctx context.Context) (*Proof, error) {
	if err := s.unit.Stop(ctx); err != nil {
		return nil, err
	}
	return waitStopped(ctx, s.Stopped)
}

// Start starts the unit, and gives up where systemd does.
func (s *systemd) Start(ctx context.Context) error {
	if runs, err := s.running(); err != nil || runs {
		return err
	}
	if err := s.unit.Start(ctx); err != nil {
		return err
	}
	return supervisor.Until(ctx, func() error {
		err := s.started()
		if !errors.Is(err, errNotRunning) {
			return err
		}
		state, err := s.unit.State(context.WithoutCancel(ctx))
		if err == nil {
			err = s.unit.Failed(state)
		}
		if err == nil {
			err = errNotRunning
		}
		return err
	})
}
