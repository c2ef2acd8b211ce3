// Package supervisor stops and starts an etcd member, and what writes through a cluster
// from this host, such as an API server, whatever they run under: systemd, the kubelet,
// or programs of the user's. It promises:
//
//  1. Stopped is proved, not believed: whatever a supervisor says, the locks that etcd
//     keeps on its database and its log are free, and no process writes to the member's
//     files or was started on them; no process of a client's name runs. A process table
//     that hides processes proves nothing of a client.
//  2. Each method may be repeated, and goes on where an earlier call was ended. A manifest
//     is seen by the kubelet whole or not at all, is never overwritten, and never moved a
//     second time.
//  3. Stop kills no client: whatever ignores SIGTERM is left to its supervisor, waited for,
//     and named. Kill ends the client of that unit or container, or the only process of a
//     command's client, and no other one.
//  4. Programs are run without a shell, and not for longer than the time that they were
//     given.
//  5. What could not be asked is an error, never a no.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/requorum/requorum/restore"
)

// Errors to distinguish.
var (
	// ErrRuns says that it is not stopped; what shows it is in the error.
	ErrRuns = errors.New("it runs")
	// ErrUnproven says that nothing was found that runs, and that not all could be
	// looked at that would.
	ErrUnproven = errors.New("that it is stopped cannot be proved")

	// errNotRunning is what Start waits to be over.
	errNotRunning = errors.New("no process of it runs yet")
)

// Member is a member under one kind of supervisor. Looking at it is safe while it is
// stopped or started, which one goroutine at a time does.
type Member interface {
	// Check looks, without changing anything, whether it could be stopped, started, and
	// proved to be stopped.
	Check(ctx context.Context) error
	// Stopped proves that it is stopped, as of now, and fails with ErrRuns or ErrUnproven.
	Stopped(ctx context.Context) error
	// Stop stops it and waits for the proof until ctx ends. One that is stopped already
	// is left alone.
	Stop(ctx context.Context) error
	// Start starts it and waits until its process runs: a member's has the database or
	// the log open. One that runs is left alone. That it serves is not waited for: of a
	// member, the others may not have been started.
	Start(ctx context.Context) error
}

// Service is a client of the cluster under one kind of supervisor.
type Service interface {
	Member
	// Wanted reports whether the client runs, or is to run: one that crashes because
	// its cluster is gone is wanted.
	Wanted(ctx context.Context) (bool, error)
	// Restart stops the client and starts it, and may find it stopped.
	Restart(ctx context.Context) error
	// Kill kills the client while a Stop waits for it, if its process is known: by systemd, by
	// a container runtime that can be asked, or by its name. killed says that it did.
	Kill(ctx context.Context) (killed bool, err error)
}

// Client is a configured one.
type Client struct {
	Service
	Config ClientConfig
}

// NewMember is the member that a configuration names. stateDir is the folder for what a
// started member prints.
func NewMember(m MemberConfig, stateDir string) (Member, error) {
	e := evidence{dataDir: m.DataDir, walDir: m.WALDir}
	if m.Kind == None {
		return none{e}, nil
	}
	s, err := newService(m.ServiceConfig, e, filepath.Join(stateDir, m.Name+".log"))
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", m.Name, err)
	}
	return s, nil
}

// none has no supervisor: it proves that nothing runs, and neither stops nor starts anything.
type none struct{ evidence }

// Check finds nothing missing.
func (none) Check(context.Context) error { return nil }

// Stopped goes by the locks: a system without a process table has them, too.
func (n none) Stopped(context.Context) error {
	err := restore.CheckMemberIdle(n.dataDir, n.walDir)
	if !errors.Is(err, restore.ErrInUse) {
		return err
	}
	if table, seen := ProcessesUsing(n.dataDir, n.walDir); seen == nil && len(table.Using) > 0 {
		return fmt.Errorf("%w: %s", ErrRuns, table.Using[0])
	}
	return fmt.Errorf("%w: %w", ErrRuns, err)
}

// Stop fails if it runs.
func (n none) Stop(ctx context.Context) error { return n.Stopped(ctx) }

// Start fails.
func (none) Start(context.Context) error { return errors.New("kind none starts nothing") }

// NewClients are those that a configuration names, in its order. stateDir is the folder
// for what programs print that were started.
func NewClients(all []ClientConfig, stateDir string) ([]Client, error) {
	var clients []Client
	for _, c := range all {
		s, err := newService(c.ServiceConfig, evidence{process: c.Process}, filepath.Join(stateDir, "client-"+c.Name+".log"))
		if err != nil {
			return nil, fmt.Errorf("client %s: %w", c.Name, err)
		}
		clients = append(clients, Client{s, c})
	}
	return clients, nil
}

func newService(c ServiceConfig, e evidence, log string) (Service, error) {
	switch c.Kind {
	case Systemd:
		return &systemd{e, c.Systemd}, nil
	case StaticPod:
		return newStaticPod(c.StaticPod, e), nil
	case Command:
		return &command{evidence: e, CommandMember: c.Command, log: log}, nil
	default:
		return nil, fmt.Errorf("kind %q is unknown", c.Kind)
	}
}

// evidence is what all kinds are proved with: of a member locks and the process table, of
// a client the process table.
type evidence struct {
	dataDir, walDir string // of a member
	process         string // of a client; empty where the supervisor's word has to do
}

func (e evidence) member() bool { return e.dataDir != "" }

// stopped proves it, beside what the supervisor says. A process that does not show its
// files is not held against a member: the locks are the kernel's, and show every one.
func (e evidence) stopped() error {
	var table *ProcessTable
	var err error
	switch {
	case e.member():
		table, err = ProcessesUsing(e.dataDir, e.walDir)
	case e.process == "":
		return nil
	default:
		table, err = ProcessesNamed(e.process)
	}
	switch {
	case err != nil:
	case len(table.Using) > 0:
		return fmt.Errorf("%w: %s", ErrRuns, table.Using[0])
	case e.member():
		// The locks last: what started while the table was read holds them by now.
		err = restore.CheckMemberIdle(e.dataDir, e.walDir)
	default:
		err = complete(table)
	}
	switch {
	case errors.Is(err, restore.ErrInUse):
		return fmt.Errorf("%w: %w", ErrRuns, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	return nil
}

// complete fails where a process may run that the table does not show.
func complete(t *ProcessTable) error {
	switch {
	case t.Incomplete != "":
		return fmt.Errorf("%s: it has to run as root, on the host itself (run: … sudo -n in the cluster file)", t.Incomplete)
	case t.Hidden > 0:
		return fmt.Errorf("%d of %d processes do not show this one what they run: it has to run as root, on the host itself (run: … sudo -n in the cluster file)", t.Hidden, t.Seen)
	}
	return nil
}

// visible fails where the process table could prove nothing of a client: it lacks
// processes, or, while the supervisor says that the client runs, shows none of the name.
func (e evidence) visible(supervised string) error {
	if e.process == "" {
		return nil
	}
	table, err := ProcessesNamed(e.process)
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

// running fails with errNotRunning until a process has the member's database or log
// locked, or has the client's name; where none is named, the supervisor's word has to do.
func (e evidence) running() error {
	switch {
	case e.member():
		err := restore.CheckMemberIdle(e.dataDir, e.walDir)
		if errors.Is(err, restore.ErrInUse) {
			return nil
		}
		if err == nil {
			err = errNotRunning
		}
		return err
	case e.process == "":
		return nil
	}
	table, err := ProcessesNamed(e.process)
	if err == nil && len(table.Using) == 0 {
		err = errNotRunning
	}
	return err
}

// waitStopped waits for the proof of a kind.
func waitStopped(ctx context.Context, stopped func(context.Context) error) error {
	// A question that was begun is answered, so that its reason is reported.
	return until(ctx, func() error { return stopped(context.WithoutCancel(ctx)) })
}
