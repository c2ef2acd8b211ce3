package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // schedules have a time zone, and hosts of small images know none

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/schedule/config"
)

// agentJobCommand is the argument with which an agent starts this program anew,
// for a job in a process of its own.
const agentJobCommand = "agent-job"

// agentMemoryLimit keeps the agent below the 256 MiB that it promises, with the
// pages of its program beside what the runtime counts. An upload to S3 holds 80 MiB
// of parts, and without a bound as much garbage and more gathers beside them: 322
// MiB were seen with a database of 8 GiB.
const agentMemoryLimit = 176 << 20

type agentOptions struct {
	file  string
	check bool
}

func newAgentCommand(g *globals) *cobra.Command {
	var o agentOptions
	cmd := &cobra.Command{
		Use:   "agent --config FILE",
		Short: "Run beside an etcd member: archive, back up, verify, prune, and report",
		Long: `Run beside each etcd member and do all that the configuration names: archive the
raft log continuously, take full snapshots on a schedule, verify them, prune what
retention does not keep, and say at any time what would be lost if everything
burned now.

Several agents of one cluster share a repository, and each job is done by one of
them. The agent changes nothing in the cluster. Its status page, health and
metrics are on one port, 127.0.0.1:2390 unless listen.address says otherwise.

SIGHUP reads the configuration again; an invalid one is refused, and the old one
stays in force. SIGTERM ends the agent within half a minute, with status 0.

docs/agent.md is the guide, docs/agent-configuration.md has every key.
'requorum doctor' tries all that a configuration names.`,
		Example: `  requorum agent --config /etc/requorum/agent.yaml
  requorum agent --config /etc/requorum/agent.yaml --check-config`,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.agent(cmd.Context(), &o) },
	}
	cmd.Flags().StringVar(&o.file, "config", "", "the agent's configuration `file` (see docs/agent-configuration.md)")
	cmd.Flags().BoolVar(&o.check, "check-config", false, "only check the configuration, as far as that needs no network")
	return cmd
}

func (g *globals) agent(ctx context.Context, o *agentOptions) error {
	if o.file == "" {
		return usageError{errors.New("no configuration: give --config FILE")}
	}
	cfg, err := config.ReadWith(o.file, g.getenv)
	if err == nil {
		err = errors.Join(cfg.Check()...)
	}
	if err != nil {
		return usageError{err}
	}
	if o.check {
		return g.printChecked(o.file, cfg)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which jobs run as well: %w", err)
	}
	boundMemory(g.getenv)
	level := new(slog.LevelVar)
	logger := g.agentLogger(cfg.Log, level)
	agent, err := schedule.New(ctx, cfg, schedule.Options{Tool: "requorum " + version, Command: []string{self, agentJobCommand}, Logger: logger})
	if err != nil {
		return err
	}
	reloading, stop := context.WithCancel(ctx)
	defer stop()
	go g.reloadOnHangup(reloading, agent, o.file, cfg.Log, level)
	err = agent.Run(ctx)
	logger.Info("agent ended")
	return err
}

// boundMemory bounds what the runtime keeps, unless the user's GOMEMLIMIT does. Jobs'
// processes have a bound of their own.
func boundMemory(getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(agentMemoryLimit)
	}
}

// reloadOnHangup takes up the configuration anew on SIGHUP.
func (g *globals) reloadOnHangup(ctx context.Context, agent *schedule.Agent, file string, log config.Log, level *slog.LevelVar) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		cfg, err := config.ReadWith(file, g.getenv)
		if err == nil && cfg.Log.Format != log.Format {
			err = fmt.Errorf("%s: log.format cannot change while the agent runs: restart it, or leave it at %s", file, log.Format)
		}
		if err != nil {
			agent.Refuse(err)
			continue
		}
		level.Set(g.agentLevel(cfg.Log))
		agent.Reload(ctx, cfg)
	}
}

// agentLevel is what the agent logs from.
func (g *globals) agentLevel(log config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(log.Level)); err != nil {
		level = slog.LevelInfo // it was checked when it was read
	}
	if g.verbose {
		level = slog.LevelDebug
	}
	return level
}

// agentLogger writes as the configuration says, from level on.
func (g *globals) agentLogger(log config.Log, level *slog.LevelVar) *slog.Logger {
	level.Set(g.agentLevel(log))
	options := &slog.HandlerOptions{Level: level}
	if log.Format == "json" {
		return slog.New(slog.NewJSONHandler(g.stderr, options))
	}
	return slog.New(slog.NewTextHandler(g.stderr, options))
}

// printChecked says what a configuration comes to.
func (g *globals) printChecked(file string, cfg *config.Config) error {
	report := checkedConfig{File: file, Agent: cfg.Name, OK: true, Warnings: []string{}}
	for _, w := range cfg.Warnings() {
		report.Warnings = append(report.Warnings, w.Error())
	}
	if g.output == "json" {
		return g.printJSON(report)
	}
	for _, w := range report.Warnings {
		g.printf("warning: %s\n", w)
	}
	g.printf("%s is in order, as far as can be checked without the network: agent %s, repository %s\n", file, cfg.Name, cfg.Repository.URL)
	return nil
}

// checkedConfig is the JSON form of `requorum agent --check-config`.
type checkedConfig struct {
	File     string   `json:"file"`
	Agent    string   `json:"agent"`
	OK       bool     `json:"ok"`
	Warnings []string `json:"warnings"`
}

// newAgentJobCommand is what an agent starts; it is no part of the interface.
func newAgentJobCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: agentJobCommand, Hidden: true,
		Short: "Do one job of an agent, as it says on standard input",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return schedule.ServeJob(cmd.Context(), g.stdin, g.stdout)
		},
	}
}
