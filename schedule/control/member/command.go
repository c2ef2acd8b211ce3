package member

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/schedule/control/config"
)

// command is a member that programs of the user's stop and start.
type command struct {
	evidence
	config.CommandMember
}

// Check finds the programs, and asks the status program.
func (c *command) Check(ctx context.Context) error {
	if err := errors.Join(found(c.CommandMember.Start), found(c.CommandMember.Stop), found(c.Status)); err != nil {
		return err
	}
	_, err := c.says(ctx)
	return err
}

// says asks the status program, where there is one; what it says is a sentence.
func (c *command) says(ctx context.Context) (string, error) {
	if len(c.Status) == 0 {
		return "", nil
	}
	_, err := ask(ctx, c.Status...)
	var exit *exitError
	switch {
	case err == nil:
		return "runs", nil
	case errors.As(err, &exit) && exit.code >= 1 && exit.code <= 3:
		return "", nil
	}
	return "", fmt.Errorf("status: %w", err)
}

// Stopped asks the status program, then the locks and the process table.
func (c *command) Stopped(ctx context.Context) (*Proof, error) {
	says, err := c.says(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if says != "" {
		return nil, fmt.Errorf("%w: %s says so", ErrRuns, c.Status[0])
	}
	proof, err := c.stopped()
	if err == nil && len(c.Status) > 0 {
		proof.Found = append(proof.Found, c.Status[0]+" says that it does not run")
	}
	return proof, err
}

// Stop runs the stop program once.
func (c *command) Stop(ctx context.Context) (*Proof, error) {
	if proof, err := c.Stopped(ctx); err == nil {
		return proof, nil
	}
	if _, err := run(ctx, c.CommandMember.Stop); err != nil {
		return nil, fmt.Errorf("stop the member: %w", err)
	}
	return waitStopped(ctx, c.Stopped)
}

// Start runs the start program once.
func (c *command) Start(ctx context.Context) error {
	if runs, err := c.running(); err != nil || runs {
		return err
	}
	if _, err := run(ctx, c.CommandMember.Start); err != nil {
		return fmt.Errorf("start the member: %w", err)
	}
	return until(ctx, c.started)
}
