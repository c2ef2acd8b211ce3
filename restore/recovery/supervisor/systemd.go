package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// systemdUnit is one of systemd's.
type systemdUnit struct {
	Name      string
	Systemctl string // the program
}

// unitState is what systemd says of a unit.
type unitState struct {
	Load, Active, Sub string
	MainPID           string // 0 where there is none
}

// Stopped reports whether the unit has no process and none is about to come.
func (u unitState) Stopped() bool {
	return (u.Active == "inactive" || u.Active == "failed") && u.MainPID == "0"
}

// State asks systemd.
func (u systemdUnit) State(ctx context.Context) (unitState, error) {
	out, err := ask(ctx, u.Systemctl, "show", "--property=LoadState,ActiveState,SubState,MainPID", "--", u.Name)
	if err != nil {
		return unitState{}, err
	}
	p := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			p[name] = value
		}
	}
	if p["ActiveState"] == "" || p["MainPID"] == "" {
		return unitState{}, fmt.Errorf("%s says neither the state nor the process of unit %s", u.Systemctl, u.Name)
	}
	return unitState{Load: p["LoadState"], Active: p["ActiveState"], Sub: p["SubState"], MainPID: p["MainPID"]}, nil
}

// Check fails where the unit is not loaded.
func (u systemdUnit) Check(ctx context.Context) error {
	if err := findProgram([]string{u.Systemctl}); err != nil {
		return err
	}
	state, err := u.State(ctx)
	if err != nil {
		return err
	}
	if state.Load != "loaded" {
		return fmt.Errorf("unit %s is %s, not loaded: systemctl status %s", u.Name, state.Load, u.Name)
	}
	return nil
}

// Stop asks systemd to stop the unit, and does not wait.
func (u systemdUnit) Stop(ctx context.Context) error { return u.job(ctx, "stop") }

// Start asks systemd to start the unit, and does not wait: a service that says when
// it is ready may wait for others that nobody has started yet.
func (u systemdUnit) Start(ctx context.Context) error {
	if err := u.reset(ctx); err != nil {
		return err
	}
	return u.job(ctx, "start")
}

// Restart asks systemd to stop the unit and start it, and does not wait.
func (u systemdUnit) Restart(ctx context.Context) error {
	if err := u.reset(ctx); err != nil {
		return err
	}
	return u.job(ctx, "restart")
}

// reset forgets failed attempts, which count towards the start limit: there were
// many while there was no data, or no store to reach.
func (u systemdUnit) reset(ctx context.Context) error {
	if _, err := ask(ctx, u.Systemctl, "reset-failed", "--", u.Name); err != nil {
		return fmt.Errorf("reset unit %s: %w", u.Name, err)
	}
	return nil
}

func (u systemdUnit) job(ctx context.Context, verb string) error {
	if _, err := ask(ctx, u.Systemctl, verb, "--no-block", "--", u.Name); err != nil {
		return fmt.Errorf("%s unit %s: %w", verb, u.Name, err)
	}
	return nil
}

// Failed is the error of a unit that will not come up by itself; nil where systemd
// still tries. Until does not wait for such a unit.
func (u systemdUnit) Failed(s unitState) error {
	if s.Active != "failed" {
		return nil
	}
	return &hopelessError{fmt.Errorf("unit %s failed: journalctl -u %s says why", u.Name, u.Name)}
}

// systemd is a member or a client that is a unit.
type systemd struct {
	evidence
	unit systemdUnit
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

// Wanted reports whether the unit is up, or on its way there. What has failed for
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

// Stopped asks systemd, then the evidence.
func (s *systemd) Stopped(ctx context.Context) (*Proof, error) {
	state, err := s.unit.State(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	case !state.Stopped():
		return nil, fmt.Errorf("%w: unit %s is %s (%s), process %s", ErrRuns, s.unit.Name, state.Active, state.Sub, state.MainPID)
	case !s.member() && state.Load != "loaded" && state.Load != "masked":
		// Whatever is not there is inactive too.
		return nil, fmt.Errorf("%w: unit %s is %s", ErrUnproven, s.unit.Name, state.Load)
	}
	return s.stopped(fmt.Sprintf("systemd says that unit %s is %s and has no process", s.unit.Name, state.Active))
}

// Stop stops the unit, also where it is stopped: a restart that systemd has planned
// is called off.
func (s *systemd) Stop(ctx context.Context) (*Proof, error) {
	if err := s.unit.Stop(ctx); err != nil {
		return nil, err
	}
	return waitStopped(ctx, s.Stopped)
}

// Start starts the unit, and gives up where systemd does. A member that somebody else
// runs is left alone.
func (s *systemd) Start(ctx context.Context) error {
	if s.member() {
		if err := s.running(); !errors.Is(err, errNotRunning) {
			return err
		}
	}
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

// up waits until the evidence shows that it runs, and, of a client, until the unit is
// active, with another process than an old one. A member's is active later: once it has
// a quorum.
func (s *systemd) up(ctx context.Context, old string) error {
	return until(ctx, func() error {
		running := s.running()
		if s.member() && !errors.Is(running, errNotRunning) {
			return running
		}
		state, err := s.unit.State(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if err := s.unit.Failed(state); err != nil {
			return err
		}
		if !s.member() && (state.Active != "active" || state.MainPID == old && old != "0") {
			return fmt.Errorf("unit %s is %s (%s), process %s", s.unit.Name, state.Active, state.Sub, state.MainPID)
		}
		return running
	})
}
