package supervisor

import (
	"context"
	"errors"
	"fmt"
)

// command is a member or a client that programs of the user's stop and start.
type command struct {
	evidence
	CommandMember
	log string // what Start leaves behind writes there
}

// Check finds the programs, asks the status program, and looks for the process.
func (c *command) Check(ctx context.Context) error {
	if err := errors.Join(findProgram(c.CommandMember.Start), findProgram(c.CommandMember.Stop), findProgram(c.Status)); err != nil {
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
	return statusOf(ctx, c.Status)
}

// Wanted asks the status program, and else the process table.
func (c *command) Wanted(ctx context.Context) (bool, error) {
	if len(c.Status) > 0 {
		return c.says(ctx)
	}
	err := c.running()
	if errors.Is(err, errNotRunning) {
		return false, nil
	}
	return err == nil, err
}

// Stopped asks the status program, then the evidence.
func (c *command) Stopped(ctx context.Context) error {
	says, err := c.says(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	case says:
		return fmt.Errorf("%w: %s says so", ErrRuns, c.Status[0])
	}
	return c.stopped()
}

// Stop runs the stop program once, unless it is stopped.
func (c *command) Stop(ctx context.Context) error {
	if c.Stopped(ctx) == nil {
		return nil
	}
	if _, err := runProgram(ctx, c.CommandMember.Stop); err != nil {
		return fmt.Errorf("the stop program: %w", err)
	}
	return waitStopped(ctx, c.Stopped)
}

// Start runs the start program once, unless it runs.
func (c *command) Start(ctx context.Context) error {
	if err := c.running(); !errors.Is(err, errNotRunning) {
		return err
	}
	if err := startProgram(ctx, c.CommandMember.Start, c.log); err != nil {
		return fmt.Errorf("the start program: %w", err)
	}
	return until(ctx, c.running)
}

// Restart stops the client and starts it.
func (c *command) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.Start(ctx)
}
