package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	agentconfig "github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/rebuilding"
)

func newAgentControlCommand(g *globals) *cobra.Command {
	var o agentOptions
	cmd := &cobra.Command{
		Use:   "control --config FILE",
		Short: "Let a recovery stop, set aside, rebuild and start this host's member",
		Long: `Let 'requorum recover' stop, set aside, rebuild and start the member of this host.

It is a process of its own, beside 'requorum agent' and with more rights, and it
is off unless it is configured: mutual TLS only, with a CA of its own, a role for
each verb in the client's certificate, requests that count once, and a line of
audit for each of them. A request names the member, never a path.

docs/agent-control.md is the guide, and has every key. --check-config tries what
the configuration names, certificates, programs, unit or manifest, and changes
nothing.
` + exitHelp,
		Example: `  requorum agent control --config /etc/requorum/control.yaml
  requorum agent control --config /etc/requorum/control.yaml --check-config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.agentControl(cmd.Context(), &o) },
	}
	cmd.Flags().StringVar(&o.file, "config", "", "the configuration `file` (see docs/agent-control.md)")
	cmd.Flags().BoolVar(&o.check, "check-config", false, "only try what the configuration names")
	return cmd
}

func (g *globals) agentControl(ctx context.Context, o *agentOptions) error {
	if o.file == "" {
		return usageError{errors.New("no configuration: give --config FILE")}
	}
	cfg, err := config.Read(o.file)
	if err != nil {
		return usageError{err}
	}
	if o.check {
		return g.checkControl(ctx, o.file, cfg)
	}
	logger := g.agentLogger(agentconfig.Log{Level: cfg.Log.Level, Format: cfg.Log.Format}, new(slog.LevelVar))
	process, err := control.Listen(ctx, cfg, rebuilding.New(cfg, logger).Hooks(), logger)
	if err != nil {
		return err
	}
	logger.Info("control of a member", "member", cfg.Member.Name, "kind", cfg.Member.Kind, "data_dir", cfg.Member.DataDir, "address", process.Addr().String())
	return process.Serve(ctx)
}

// checkedControl is the JSON form of `requorum agent control --check-config`.
type checkedControl struct {
	File     string   `json:"file"`
	Member   string   `json:"member"`
	OK       bool     `json:"ok"`
	Warnings []string `json:"warnings,omitempty"`
}

// tryControl tries what a configuration names.
func tryControl(ctx context.Context, cfg *config.Config) (warnings []string, err error) {
	warnings, err = rebuilding.New(cfg, nil).Check(ctx)
	warnings = append(warnings, control.FlagWarnings(ctx, cfg)...)
	return warnings, errors.Join(control.Check(ctx, cfg), err)
}

func (g *globals) checkControl(ctx context.Context, file string, cfg *config.Config) error {
	warnings, err := tryControl(ctx, cfg)
	if err != nil {
		return err
	}
	if g.output == "json" {
		return g.printJSON(checkedControl{file, cfg.Member.Name, true, warnings})
	}
	for _, w := range warnings {
		g.note("%s", w)
	}
	fmt.Fprintf(g.stdout, "%s can be honoured: member %s (%s) on %s, data directory %s\n", file, cfg.Member.Name, cfg.Member.Kind, cfg.Listen.Address, cfg.Member.DataDir)
	return nil
}
