package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	_ "time/tzdata" // schedules have a time zone, and hosts of small images know none

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/walreplay"
)

// agentMemoryLimit keeps the agent below the 256 MiB that it promises, with the
// pages of its program beside what the runtime counts. An upload to S3 holds 80 MiB
// of parts, and without a bound as much garbage and more gathers beside them: 322
// MiB were seen with a database of 8 GiB.
const agentMemoryLimit = 176 << 20

type agentOptions struct {
	file  string
	flags *pflag.FlagSet
	check bool
	once  bool
}

func newAgentCommand(g *globals) *cobra.Command {
	var o agentOptions
	cmd := &cobra.Command{
		Use:   "agent --data-dir DIR --repo URL [--endpoints URL,…] | --config FILE",
		Short: "Run beside an etcd member: archive, back up, verify, prune, and report",
		Long: `Run beside an etcd member (3.5 to 3.7): archive its raft log continuously, take full
snapshots on a schedule, verify them, prune what retention does not keep, and show at
any time what would be lost if everything burned now.

Run one beside each member, with the same repository: each job is done by one of them.
The agent changes nothing in the cluster. Its status page, health and metrics are on
one port, 127.0.0.1:2390 unless --listen names another.

--once archives what is committed now, takes the full snapshot that the log needs, and
ends; status 1 means that an alarm is left.

A file (--config) has more keys than there are flags, schedules for example; each flag
sets one of them. SIGHUP reads the file again; an invalid one is refused, and the old
one stays in force. SIGTERM ends the agent within half a minute, with status 0.

docs/agent.md is the guide, docs/agent-configuration.md has every key.
'requorum doctor' tries all that a configuration names.`,
		Example: `  requorum agent --data-dir /var/lib/etcd --repo 's3://backups/etcd?region=eu-central-1'
  requorum agent --data-dir /var/lib/etcd --repo /mnt/backups --jobs none --once
  requorum agent --config /etc/requorum/agent.yaml --check-config`,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.agent(cmd.Context(), &o) },
	}
	o.flags = cmd.Flags()
	for _, f := range config.Flags {
		switch short := map[string]string{"repo": "r"}[f.Name]; f.List {
		case config.One:
			o.flags.StringP(f.Name, short, "", f.Usage)
		case config.Repeated:
			o.flags.StringArray(f.Name, nil, f.Usage)
		case config.Commas:
			o.flags.StringSlice(f.Name, nil, f.Usage)
		}
	}
	o.flags.StringVar(&o.file, "config", "", "the agent's configuration `file`, in place of the flags above (see docs/agent-configuration.md)")
	o.flags.BoolVar(&o.check, "check-config", false, "only check the configuration, as far as that needs no network")
	o.flags.BoolVar(&o.once, "once", false, "archive what is committed now, and end")
	return cmd
}

// configuration reads what the file holds, or what the flags give.
func (o *agentOptions) configuration(g *globals) (*config.Config, error) {
	if o.file != "" {
		for _, f := range config.Flags {
			if slices.Contains(g.typed, f.Name) {
				return nil, fmt.Errorf("--%s and --config: write %s into the file, or leave --config out", f.Name, f.Key)
			}
		}
		return config.ReadWith(o.file, g.getenv)
	}
	given := map[string][]string{}
	for _, f := range config.Flags {
		if flag := o.flags.Lookup(f.Name); flag.Changed {
			given[f.Name] = valuesOf(flag)
		}
	}
	return config.FromFlags(given, g.getenv)
}

func (g *globals) agent(ctx context.Context, o *agentOptions) error {
	cfg, err := o.configuration(g)
	if err == nil {
		err = errors.Join(cfg.Check()...)
	}
	if err == nil {
		if bad := walreplay.CheckDataDir(cfg.Member.DataDir); bad != nil {
			err = cfg.Fault("member.data-dir", bad)
		}
	}
	if err == nil && o.once && !cfg.Archiving() {
		err = cfg.Fault("member.data-dir", errors.New("without it --once has no log to archive"))
	}
	if err != nil {
		return configError{usageError{err}}
	}
	if o.check {
		return g.printChecked(cfg)
	}
	boundMemory(g.getenv)
	level := new(slog.LevelVar)
	logger := g.agentLogger(cfg.Log, level)
	options := schedule.Options{Tool: "requorum " + version, Logger: logger}
	if o.once {
		report, err := schedule.Once(ctx, cfg, options)
		return errors.Join(g.printOnce(report), err)
	}
	if options.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, which jobs run as well: %w", err)
	}
	for _, w := range cfg.Warnings() {
		logger.Warn(w.Error())
	}
	agent, err := schedule.New(ctx, cfg, options)
	if err != nil {
		return err
	}
	reloading, stop := context.WithCancel(ctx)
	defer stop()
	go g.reloadOnHangup(reloading, agent, o, cfg.Log, level)
	err = agent.Run(ctx)
	logger.Info("agent ended")
	return err
}

// printOnce shows what --once did; nothing if it did not come so far.
func (g *globals) printOnce(r *schedule.OnceReport) error {
	if r == nil {
		return nil
	}
	if g.output == "json" {
		r.State.Gaps, r.State.Alarms = emptyNotNull(r.State.Gaps), emptyNotNull(r.State.Alarms)
		return g.printJSON(r)
	}
	if m := r.Backup; m != nil {
		g.printf("took the full snapshot that was due: %s, revision %d, raft index %d\n", m.ID, m.Facts.Revision, m.Facts.RaftIndex)
	}
	g.printf("timeline %s is archived to index %d, revision %d\n", r.State.Timeline, r.State.Archived, r.State.ArchivedRevision)
	return nil
}

// boundMemory bounds what the runtime keeps, unless the user's GOMEMLIMIT does. Jobs'
// processes have a bound of their own.
func boundMemory(getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(agentMemoryLimit)
	}
}

// reloadOnHangup takes up the configuration anew on SIGHUP.
func (g *globals) reloadOnHangup(ctx context.Context, agent *schedule.Agent, o *agentOptions, log config.Log, level *slog.LevelVar) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		cfg, err := o.configuration(g)
		if err == nil && cfg.Log.Format != log.Format {
			err = cfg.Fault("log.format", fmt.Errorf("it cannot change while the agent runs: restart it, or leave it at %s", log.Format))
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
func (g *globals) printChecked(cfg *config.Config) error {
	report := checkedConfig{File: cfg.File(), Agent: cfg.Name, OK: true, Warnings: []string{}}
	for _, w := range cfg.Warnings() {
		report.Warnings = append(report.Warnings, w.Error())
	}
	if g.output == "json" {
		return g.printJSON(report)
	}
	for _, w := range report.Warnings {
		g.printf("warning: %s\n", w)
	}
	g.printf("%s is in order, as far as can be checked without the network: agent %s, repository %s\n", cfg.File(), cfg.Name, cfg.Repository.URL)
	return nil
}

// checkedConfig is the JSON form of `requorum agent --check-config`.
type checkedConfig struct {
	File     string   `json:"file"`
	Agent    string   `json:"agent"`
	OK       bool     `json:"ok"`
	Warnings []string `json:"warnings"`
}
