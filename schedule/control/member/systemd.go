package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// systemd is a member that is a unit.
type systemd struct {
	evidence
	unit, systemctl string
}

// unitFailedError ends a wait: the unit will not come up by itself.
type unitFailedError struct{ unit string }

func (e *unitFailedError) Error() string {
	return fmt.Sprintf("unit %s failed: journalctl -u %s says why", e.unit, e.unit)
}

// properties of the unit, by their names.
func (s *systemd) properties(ctx context.Context) (map[string]string, error) {
	out, err := ask(ctx, s.systemctl, "show", "--property=LoadState,ActiveState,SubState,MainPID", "--", s.unit)
	if err != nil {
		return nil, err
	}
	p := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			p[name] = value
		}
	}
	if p["ActiveState"] == "" || p["MainPID"] == "" {
		return nil, fmt.Errorf("%s says neither the state nor the process of unit %s", s.systemctl, s.unit)
	}
	return p, nil
}

// Check asks whether the unit is loaded.
func (s *systemd) Check(ctx context.Context) error {
	if err := found([]string{s.systemctl}); err != nil {
		return err
	}
	p, err := s.properties(ctx)
	if err != nil {
		return err
	}
	if state := p["LoadState"]; state != "loaded" {
		return fmt.Errorf("unit %s is %s, not loaded: systemctl status %s", s.unit, state, s.unit)
	}
	return nil
}

// Stopped asks systemd, then the locks and the process table.
func (s *systemd) Stopped(ctx context.Context) (*Proof, error) {
	p, err := s.properties(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if state := p["ActiveState"]; state != "inactive" && state != "failed" || p["MainPID"] != "0" {
		return nil, fmt.Errorf("%w: unit %s is %s (%s), process %s", ErrRuns, s.unit, state, p["SubState"], p["MainPID"])
	}
	proof, err := s.stopped()
	if err == nil {
		proof.Found = append(proof.Found, fmt.Sprintf("systemd says that unit %s is %s and has no process", s.unit, p["ActiveState"]))
	}
	return proof, err
}

// Stop stops the unit.
func (s *systemd) Stop(ctx context.Context) (*Proof, error) {
	// Also where it is stopped: a restart that systemd has planned is called off.
	if _, err := ask(ctx, s.systemctl, "stop", "--no-block", "--", s.unit); err != nil {
		return nil, fmt.Errorf("stop unit %s: %w", s.unit, err)
	}
	return waitStopped(ctx, s.Stopped)
}

// Start starts the unit, and gives up where systemd does.
func (s *systemd) Start(ctx context.Context) error {
	if runs, err := s.running(); err != nil || runs {
		return err
	}
	// Attempts that failed while there was no data count towards the start limit.
	if _, err := ask(ctx, s.systemctl, "reset-failed", "--", s.unit); err != nil {
		return fmt.Errorf("reset unit %s: %w", s.unit, err)
	}
	// Without --no-block it would wait until etcd says that it is ready, which takes
	// a quorum.
	if _, err := ask(ctx, s.systemctl, "start", "--no-block", "--", s.unit); err != nil {
		return fmt.Errorf("start unit %s: %w", s.unit, err)
	}
	var failed *unitFailedError
	err := until(ctx, func() error {
		err := s.started()
		if errors.Is(err, errNotRunning) {
			p, err := s.properties(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			if p["ActiveState"] == "failed" {
				failed = &unitFailedError{s.unit}
				return nil
			}
			return errNotRunning
		}
		return err
	})
	if failed != nil {
		return failed
	}
	return err
}
