package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// command is a client that programs of the user's stop and start.
type command struct {
	evidence
	config.CommandMember
	log string // what Start leaves behind writes there
}

// Check finds the programs, asks the status program, and looks for the process.
func (c *command) Check(ctx context.Context) error {
	if err := errors.Join(supervisor.Found(c.CommandMember.Start), supervisor.Found(c.CommandMember.Stop), supervisor.Found(c.Status)); err != nil {
		return err
	}
	says, err := c.says(ctx)
	if err != nil || !says {
		return errors.Join(err, c.visible(""))
	}
	return c.visible(c.Status[0] + " says that it runs")
}

// says asks the status program, where there is one.
func (c *command) says(ctx context.Context) (bool, error) {
	if len(c.Status) == 0 {
		return false, nil
	}
	return supervisor.Status(ctx, c.Status)
}

// Wanted asks the status program, and else the process table.
func (c *command) Wanted(ctx context.Context) (bool, error) {
	if len(c.Status) > 0 {
		return c.says(ctx)
	}
	err := c.started()
	if errors.Is(err, errNotRunning) {
		return false, nil
	}
	return err == nil, err
}

// Stopped asks the status program, then the process table.
func (c *command) Stopped(ctx context.Context) ([]string, error) {
	says, err := c.says(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	case says:
		return nil, fmt.Errorf("%w: %s says so", ErrRuns, c.Status[0])
	}
	found, err := c.gone()
	if err == nil && len(c.Status) > 0 {
		found = append(found, c.Status[0]+" says that it does not run")
	}
	return found, err
}

// Stop runs the stop program once, unless the client is stopped.
func (c *command) Stop(ctx context.Context) error {
	if _, err := c.Stopped(ctx); err == nil {
		return nil
	}
	if _, err := supervisor.Run(ctx, c.CommandMember.Stop); err != nil {
		return fmt.Errorf("the stop program: %w", err)
	}
	return waitStopped(ctx, c.Stopped)
}

// Start runs the start program once, unless the client runs.
func (c *command) Start(ctx context.Context) error {
	if c.started() == nil {
		return nil
	}
	if err := supervisor.Start(ctx, c.CommandMember.Start, c.log); err != nil {
		return fmt.Errorf("the start program: %w", err)
	}
	return supervisor.Until(ctx, c.started)
}

// Restart stops the client and starts it.
func (c *command) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.Start(ctx)
}
