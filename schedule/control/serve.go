package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/requorum/requorum/schedule/api"
	"github.com/requorum/requorum/schedule/control/clients"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/member"
)

// Process is a control process that has its address and its files, and answers
// once Serve is called.
type Process struct {
	options  Options
	listener net.Listener
}

// Listen opens all that a configuration names: the journal, the audit file and the
// address. A member that cannot be controlled as yet is a warning: what it needs,
// such as a container runtime, may come up later than this process. The caller
// calls Serve, which closes it all. logger may be nil.
func Listen(ctx context.Context, cfg *config.Config, hooks Hooks, logger *slog.Logger) (*Process, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	controller, err := member.New(cfg.Member, cfg.StateDir)
	if err != nil {
		return nil, err
	}
	if err := tried(ctx, controller, cfg); err != nil {
		logger.Warn("the member cannot be controlled now", "error", err)
	}
	all, err := clients.New(cfg.Clients, cfg.StateDir)
	if err != nil {
		return nil, err
	}
	if err := triedClients(ctx, all); err != nil {
		logger.Warn("not all clients can be quiesced now", "error", err)
	}
	j, err := journal.Open(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	audit, err := OpenAudit(cfg.AuditFile)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	ln, err := api.Listen(ctx, listenConfig(cfg))
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return &Process{
		options:  Options{Config: cfg, Controller: controller, Clients: all, Journal: j, Audit: audit, Hooks: hooks, Logger: logger},
		listener: newGate(ln, audit, logger),
	}, nil
}

// Addr is where the process listens.
func (p *Process) Addr() net.Addr { return p.listener.Addr() }

// Serve answers until ctx ends. An action under way is then cut off after a few
// seconds; its run can go on with it.
func (p *Process) Serve(ctx context.Context) error {
	err := api.Serve(ctx, p.listener, New(p.options), p.options.Logger)
	return errors.Join(err, p.options.Journal.Close())
}

// Check tries what a configuration names without changing anything and without
// binding the address: certificates, programs, units or manifests, and whether the
// processes of clients can be seen.
func Check(ctx context.Context, cfg *config.Config) error {
	controller, err := member.New(cfg.Member, cfg.StateDir)
	if err == nil {
		err = tried(ctx, controller, cfg)
	}
	all, clientsErr := clients.New(cfg.Clients, cfg.StateDir)
	return errors.Join(err, clientsErr, triedClients(ctx, all), listenConfig(cfg).Check())
}

func tried(ctx context.Context, c member.Controller, cfg *config.Config) error {
	if err := c.Check(ctx); err != nil {
		return fmt.Errorf("member %s (%s) cannot be controlled: %w", cfg.Member.Name, cfg.Member.Kind, err)
	}
	return nil
}

// listenConfig always has a client CA: the configuration has no way without.
func listenConfig(cfg *config.Config) api.ListenConfig {
	l := cfg.Listen
	return api.ListenConfig{Address: l.Address, Cert: l.Cert, Key: l.Key, ClientCA: l.ClientCA}
}
