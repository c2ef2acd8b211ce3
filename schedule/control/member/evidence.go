package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/processes"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// evidence is what all kinds are proved with: locks, and the process table.
type evidence struct{ dataDir, walDir string }

// stopped looks at the locks and at the process table.
func (e evidence) stopped() (*Proof, error) {
	proof := &Proof{Time: time.Now().UTC()}
	table, err := processes.Read(e.dataDir, e.walDir)
	if err != nil {
		return nil, err
	}
	proof.Processes = table
	if len(table.Using) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrRuns, table.Using[0])
	}
	// The locks last: what started while the table was read holds them by now.
	switch err := restore.CheckMemberIdle(e.dataDir, e.walDir); {
	case errors.Is(err, restore.ErrInUse):
		return nil, fmt.Errorf("%w: %w", ErrRuns, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	proof.Found = []string{
		fmt.Sprintf("none of %d processes writes to %s or was started on it", table.Seen, e.dataDir),
		"the locks on its database and its log are free",
	}
	if table.Hidden > 0 {
		// The locks are the kernel's and tell of every process; this is said, not held
		// against the proof.
		proof.Found = append(proof.Found, fmt.Sprintf("%d of the processes do not show this one their files; their command lines and the locks were looked at", table.Hidden))
	}
	return proof, nil
}

// running tells whether a process has the member's database or log locked.
func (e evidence) running() (bool, error) {
	err := restore.CheckMemberIdle(e.dataDir, e.walDir)
	if errors.Is(err, restore.ErrInUse) {
		return true, nil
	}
	return false, err
}

// errNotRunning is what Start waits to be over.
var errNotRunning = errors.New("no process has the member's database or log open yet")

func (e evidence) started() error {
	switch runs, err := e.running(); {
	case err != nil:
		return err
	case !runs:
		return errNotRunning
	}
	return nil
}

// waitStopped waits for the proof of a kind.
func waitStopped(ctx context.Context, stopped func(context.Context) (*Proof, error)) (*Proof, error) {
	var proof *Proof
	err := supervisor.Until(ctx, func() (err error) {
		// A question that was begun is answered, so that its reason is told.
		proof, err = stopped(context.WithoutCancel(ctx))
		return err
	})
	return proof, err
}
