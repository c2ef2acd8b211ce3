package clients

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// Errors to tell apart.
var (
	// ErrRuns says that the client is not stopped; what shows it is in the error.
	ErrRuns = errors.New("it runs")
	// ErrUnproven says that nothing was found that runs, and that not all could be
	// looked at that would.
	ErrUnproven = errors.New("that it is stopped cannot be proved")
)

// controller is a kind of client.
type controller interface {
	// Check looks, without changing anything, whether the client could be stopped,
	// started, and proved to be gone.
	Check(ctx context.Context) error
	// Wanted tells whether the client runs, or is to run: one that crashes because
	// its cluster is gone is wanted.
	Wanted(ctx context.Context) (bool, error)
	// Stopped says what proves that the client is stopped, as of now, and fails with
	// ErrRuns or ErrUnproven.
	Stopped(ctx context.Context) ([]string, error)
	// Stop stops the client and waits for the proof until ctx ends. One that is
	// stopped already is left alone.
	Stop(ctx context.Context) error
	// Start starts the client and waits until its process runs; one that runs is left
	// alone. That it serves is not waited for.
	Start(ctx context.Context) error
	// Restart stops the client and starts it, and may find it stopped.
	Restart(ctx context.Context) error
}

// Client is a configured one. Looking at it is safe while it is stopped or started,
// which one goroutine at a time does.
type Client struct {
	controller
	Config config.Client
}

// New gives those that a configuration names, in its order. stateDir is the folder for
// what programs print that were started.
func New(all []config.Client, stateDir string) ([]Client, error) {
	var clients []Client
	for _, c := range all {
		e := evidence{process: c.Process}
		client := Client{Config: c}
		switch c.Kind {
		case config.Systemd:
			client.controller = &systemd{evidence: e, unit: supervisor.Unit{Name: c.Systemd.Unit, Systemctl: c.Systemd.Systemctl}}
		case config.StaticPod:
			client.controller = newStaticPod(c.StaticPod, e)
		case config.Command:
			client.controller = &command{evidence: e, CommandMember: c.Command, log: filepath.Join(stateDir, "client-"+c.Name+".log")}
		default:
			return nil, fmt.Errorf("client %s: kind %q is unknown", c.Name, c.Kind)
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// Look gives the state of the client as of now.
func (c Client) Look(ctx context.Context) protocol.ClientState {
	state := protocol.ClientState{Name: c.Config.Name, Kind: c.Config.Kind, Restart: c.Config.Restart}
	found, err := c.Stopped(ctx)
	if err != nil {
		state.Why, state.Runs = err.Error(), errors.Is(err, ErrRuns)
		return state
	}
	state.Stopped, state.Found = true, found
	return state
}

// waitStopped waits for the proof of a kind.
func waitStopped(ctx context.Context, stopped func(context.Context) ([]string, error)) error {
	return supervisor.Until(ctx, func() error {
		// A question that was begun is answered, so that its reason is told.
		_, err := stopped(context.WithoutCancel(ctx))
		return err
	})
}
