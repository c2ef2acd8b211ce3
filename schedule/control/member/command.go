package member

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// command is a member that programs of the user's stop and start.
type command struct {
	evidence
	config.CommandMember
	log string // what Start leaves behind writes there
}

// Check finds the programs, and asks the status program.
func (c *command) Check(ctx context.Context) error {
	if err := errors.Join(supervisor.Found(c.CommandMember.Start), supervisor.Found(c.CommandMember.Stop), supervisor.Found(c.Status)); err != nil {
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
	runs, err := supervisor.Status(ctx, c.Status)
	if runs {
		return "runs", nil
	}
	return "", err
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
	if _, err := supervisor.Run(ctx, c.CommandMember.Stop); err != nil {
		return nil, fmt.Errorf("stop the member: %w", err)
	}
	return waitStopped(ctx, c.Stopped)
}

// Start runs the start program once.
func (c *command) Start(ctx context.Context) error {
	if runs, err := c.running(); err != nil || runs {
		return err
	}
	if err := supervisor.Start(ctx, c.CommandMember.Start, c.log); err != nil {
		return fmt.Errorf("start the member: %w", err)
	}
	return supervisor.Until(ctx, c.started)
}
