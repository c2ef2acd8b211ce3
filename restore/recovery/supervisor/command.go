package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// command is a member or a client that programs of the user's stop and start.
type command struct {
	evidence
	CommandMember
	log string // what Start leaves behind writes there

	// While a Stop waits: the only process of the client's name when it began, nil if there
	// were several, and whether the stop program still runs.
	victim   atomic.Pointer[os.Process]
	stopping atomic.Bool
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
	if c.process != "" {
		if table, err := ProcessesNamed(c.process); err == nil && len(table.Using) == 1 {
			process, err := os.FindProcess(table.Using[0].PID)
			if err != nil {
				return err
			}
			c.victim.Store(process)
			defer c.victim.Store(nil)
		}
	}
	c.stopping.Store(true)
	_, err := runProgram(ctx, c.CommandMember.Stop)
	c.stopping.Store(false)
	if err != nil {
		return fmt.Errorf("the stop program: %w", err)
	}
	return waitStopped(ctx, c.Stopped)
}

// Kill kills the process that ran when the stop program began, if no other has the client's
// name, which may be another's. The client runs as long as the status program says so, or
// without one as long as the stop program waits.
func (c *command) Kill(ctx context.Context) (bool, error) {
	process := c.victim.Load()
	if process == nil || len(c.Status) == 0 && !c.stopping.Load() {
		return false, nil
	}
	if says, err := c.says(ctx); len(c.Status) > 0 && !says || err != nil {
		return false, err
	}
	table, err := ProcessesNamed(c.process)
	if err != nil || len(table.Using) != 1 || table.Using[0].PID != process.Pid {
		return false, err
	}
	// Between both a process of its ID is still this one: Go holds a descriptor of it.
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("kill %s: %w", table.Using[0], err)
	}
	return true, nil
}

// Start runs the start program once, unless it runs.
func (c *command) Start(ctx context.Context) error {
	if err := c.running(); !errors.Is(err, errNotRunning) {
		return err
	}
	if err := startProgram(ctx, c.CommandMember.Start, c.log); err != nil {
		return fmt.Errorf("the start program: %w", err)
	}
	if err := until(ctx, c.running); err != nil {
		return fmt.Errorf("%w: what the start program wrote is in %s", err, c.log)
	}
	return nil
}

// Restart stops the client and starts it.
func (c *command) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.Start(ctx)
}
