package supervisor

import (
	"context"
	"fmt"
	"strings"
)

// Unit is one of systemd's.
type Unit struct {
	Name      string
	Systemctl string // the program
}

// UnitState is what systemd says of a unit.
type UnitState struct {
	Load, Active, Sub string
	MainPID           string // 0 where there is none
}

// Stopped tells whether the unit has no process and none is about to come.
func (u UnitState) Stopped() bool {
	return (u.Active == "inactive" || u.Active == "failed") && u.MainPID == "0"
}

// State asks systemd.
func (u Unit) State(ctx context.Context) (UnitState, error) {
	out, err := Ask(ctx, u.Systemctl, "show", "--property=LoadState,ActiveState,SubState,MainPID", "--", u.Name)
	if err != nil {
		return UnitState{}, err
	}
	p := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			p[name] = value
		}
	}
	if p["ActiveState"] == "" || p["MainPID"] == "" {
		return UnitState{}, fmt.Errorf("%s says neither the state nor the process of unit %s", u.Systemctl, u.Name)
	}
	return UnitState{Load: p["LoadState"], Active: p["ActiveState"], Sub: p["SubState"], MainPID: p["MainPID"]}, nil
}

// Check fails where the unit is not loaded.
func (u Unit) Check(ctx context.Context) error {
	if err := Found([]string{u.Systemctl}); err != nil {
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
func (u Unit) Stop(ctx context.Context) error { return u.job(ctx, "stop") }

// Start asks systemd to start the unit, and does not wait: a service that says when
// it is ready may wait for others that nobody has started yet.
func (u Unit) Start(ctx context.Context) error {
	if err := u.reset(ctx); err != nil {
		return err
	}
	return u.job(ctx, "start")
}

// Restart asks systemd to stop the unit and start it, and does not wait.
func (u Unit) Restart(ctx context.Context) error {
	if err := u.reset(ctx); err != nil {
		return err
	}
	return u.job(ctx, "restart")
}

// reset forgets failed attempts, which count towards the start limit: there were
// many while there was no data, or no store to reach.
func (u Unit) reset(ctx context.Context) error {
	if _, err := Ask(ctx, u.Systemctl, "reset-failed", "--", u.Name); err != nil {
		return fmt.Errorf("reset unit %s: %w", u.Name, err)
	}
	return nil
}

func (u Unit) job(ctx context.Context, verb string) error {
	if _, err := Ask(ctx, u.Systemctl, verb, "--no-block", "--", u.Name); err != nil {
		return fmt.Errorf("%s unit %s: %w", verb, u.Name, err)
	}
	return nil
}

// Failed is the error of a unit that will not come up by itself; nil where systemd
// still tries. Until does not wait for such a unit.
func (u Unit) Failed(s UnitState) error {
	if s.Active != "failed" {
		return nil
	}
	return &hopelessError{fmt.Errorf("unit %s failed: journalctl -u %s says why", u.Name, u.Name)}
}
