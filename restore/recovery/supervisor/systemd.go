package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// systemd is a member or a client that is a unit.
type systemd struct {
	evidence
	SystemdMember
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

// state asks systemd.
func (s *systemd) state(ctx context.Context) (unitState, error) {
	out, err := ask(ctx, s.Systemctl, "show", "--property=LoadState,ActiveState,SubState,MainPID", "--", s.Unit)
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
		return unitState{}, fmt.Errorf("%s says neither the state nor the process of unit %s", s.Systemctl, s.Unit)
	}
	return unitState{Load: p["LoadState"], Active: p["ActiveState"], Sub: p["SubState"], MainPID: p["MainPID"]}, nil
}

// request gives systemd something to do with the unit.
func (s *systemd) request(ctx context.Context, verb string, flags ...string) error {
	if _, err := ask(ctx, append(append([]string{s.Systemctl, verb}, flags...), "--", s.Unit)...); err != nil {
		return fmt.Errorf("%s unit %s: %w", verb, s.Unit, err)
	}
	return nil
}

// Check asks whether the unit is loaded, and looks for its process.
func (s *systemd) Check(ctx context.Context) error {
	if err := findProgram([]string{s.Systemctl}); err != nil {
		return err
	}
	state, err := s.state(ctx)
	switch {
	case err != nil:
		return err
	case state.Load != "loaded":
		return fmt.Errorf("unit %s is %s, not loaded: systemctl status %s", s.Unit, state.Load, s.Unit)
	case state.Active == "active" && state.MainPID != "0":
		return s.visible("unit " + s.Unit + " has process " + state.MainPID)
	}
	return s.visible("")
}

// Wanted reports whether the unit is up, or on its way there. What has failed for
// good, or is being stopped, somebody has to start.
func (s *systemd) Wanted(ctx context.Context) (bool, error) {
	state, err := s.state(ctx)
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
func (s *systemd) Stopped(ctx context.Context) error {
	state, err := s.state(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	case !state.Stopped():
		return fmt.Errorf("%w: unit %s is %s (%s), process %s", ErrRuns, s.Unit, state.Active, state.Sub, state.MainPID)
	case !s.member() && state.Load != "loaded" && state.Load != "masked":
		// Whatever is not there is inactive too.
		return fmt.Errorf("%w: unit %s is %s", ErrUnproven, s.Unit, state.Load)
	}
	return s.stopped()
}

// Stop stops the unit, also where it is stopped: a restart that systemd has planned
// is called off.
func (s *systemd) Stop(ctx context.Context) error {
	if err := s.request(ctx, "stop", "--no-block"); err != nil {
		return err
	}
	return waitStopped(ctx, s.Stopped)
}

// Kill kills the unit's main process: what that leaves behind, systemd ends as the unit says.
func (s *systemd) Kill(ctx context.Context) (bool, error) {
	if state, err := s.state(ctx); err != nil || state.MainPID == "0" {
		return false, err
	}
	err := s.request(ctx, "kill", "--kill-who=main", "--signal=SIGKILL") // --kill-whom is unknown before 252
	return err == nil, err
}

// Start starts the unit, and gives up where systemd does. A member that somebody else
// runs is left alone.
func (s *systemd) Start(ctx context.Context) error {
	if s.member() {
		if err := s.running(); !errors.Is(err, errNotRunning) {
			return err
		}
	}
	state, err := s.state(ctx)
	if err != nil {
		return err
	}
	if state.Active != "active" {
		if err := s.begin(ctx, "start"); err != nil {
			return err
		}
	}
	return s.up(ctx, "0")
}

// Restart restarts the unit, with what depends on it, and waits until it has another process.
func (s *systemd) Restart(ctx context.Context) error {
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, "restart"); err != nil {
		return err
	}
	return s.up(ctx, before.MainPID)
}

// begin does not wait: a service that says when it is ready may wait for others that
// nobody has started yet. Failed attempts count towards the start limit: there were many
// while there was no data, or no store to reach.
func (s *systemd) begin(ctx context.Context, verb string) error {
	if err := s.request(ctx, "reset-failed"); err != nil {
		return err
	}
	return s.request(ctx, verb, "--no-block")
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
		state, err := s.state(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if state.Active == "failed" { // else systemd still tries
			return &hopelessError{fmt.Errorf("unit %s failed: journalctl -u %s says why", s.Unit, s.Unit)}
		}
		if !s.member() && (state.Active != "active" || state.MainPID == old && old != "0") {
			return fmt.Errorf("unit %s is %s (%s), process %s", s.Unit, state.Active, state.Sub, state.MainPID)
		}
		return running
	})
}
