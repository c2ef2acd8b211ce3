package clients

import (
	"errors"
	"fmt"

	"github.com/requorum/requorum/schedule/control/processes"
)

// errNotRunning is what Start waits to be over.
var errNotRunning = errors.New("no process of it runs yet")

// evidence is what all kinds are proved with: the process table.
type evidence struct{ process string } // empty where the supervisor's word has to do

// gone says that no process of the name runs.
func (e evidence) gone() ([]string, error) {
	if e.process == "" {
		return nil, nil
	}
	table, err := processes.Named(e.process)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	case len(table.Using) > 0:
		return nil, fmt.Errorf("%w: %s", ErrRuns, table.Using[0])
	}
	if err := complete(table); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	return []string{fmt.Sprintf("none of %d processes runs %s", table.Seen, e.process)}, nil
}

// complete fails where a process may run that the table does not show.
func complete(t *processes.Table) error {
	switch {
	case t.Incomplete != "":
		return fmt.Errorf("%s: run agent control as root, on the host itself", t.Incomplete)
	case t.Hidden > 0:
		return fmt.Errorf("%d of %d processes do not show this one what they run: run agent control as root, on the host itself", t.Hidden, t.Seen)
	}
	return nil
}

// visible fails where the process table could prove nothing: it lacks processes, or,
// while the supervisor says that the client runs, shows none of the name.
func (e evidence) visible(supervised string) error {
	if e.process == "" {
		return nil
	}
	table, err := processes.Named(e.process)
	if err != nil {
		return err
	}
	if err := complete(table); err != nil {
		return err
	}
	if supervised != "" && len(table.Using) == 0 {
		return fmt.Errorf("%s, and no process is called %s: correct process:, or nothing could be proved by it", supervised, e.process)
	}
	return nil
}

// started fails with errNotRunning until a process of the name runs; where none is
// named, the supervisor's word has to do.
func (e evidence) started() error {
	if e.process == "" {
		return nil
	}
	table, err := processes.Named(e.process)
	if err == nil && len(table.Using) == 0 {
		err = errNotRunning
	}
	return err
}
