package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/verify/replaying"
)

func newHostCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "What 'requorum recover' runs on each host",
		Long: `What 'requorum recover --config FILE' runs on each host, through ssh or what the
cluster file names: it stops, sets aside, rebuilds and starts the member there. It
listens nowhere and reads no configuration: all that it does is asked for on its
standard input, and answered on its standard output, one line of JSON each. It ends
with its input, once an action that is under way is done. state.json in the
host's state folder shows the next one what is done.`,
		Example: `  ssh root@10.0.0.1 requorum host    # as recover does by default`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A line that is cut must not end an action half-way.
			signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
			return host.Serve(cmd.Context(), g.stdin, g.stdout, host.Options{Version: version, Logger: g.logger(), CheckBase: replaying.CheckBase})
		},
	}
	cmd.AddCommand(newHostMayStartCommand(g))
	return cmd
}

func newHostMayStartCommand(g *globals) *cobra.Command {
	cfg := supervisor.DefaultSetup()
	var repositories []string
	var keys keyFlags
	cmd := &cobra.Command{
		Use:   "may-start --data-dir DIR [--repo URL]",
		Short: "Fail where this host's member must not be started",
		Long: `Fail where the member of this host must not be started: a recovery has put another
cluster in the place of its own, or has left the directory half-way. It is the check
for ExecStartPre= of a unit, and for an init container.

What this host remembers of recoveries is asked, and, with --repo, the repositories: one
that cannot be asked within 10 s is named, and keeps no member down.`,
		Example: `  requorum host may-start --data-dir /var/lib/etcd
  requorum host may-start --data-dir /var/lib/etcd --repo 's3://bucket/prefix?region=eu-west-1'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.mayStart(cmd.Context(), cfg, repositories, &keys)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.DataDir, "data-dir", "", "the member's data `directory`")
	f.StringVar(&cfg.WALDir, "wal-dir", "", "its log's, where that is another `directory`")
	f.StringVar(&cfg.StateDir, "state-dir", supervisor.DefaultStateDir, "the `folder` of this host's state.json, as in the cluster file")
	f.StringArrayVar(&repositories, "repo", nil, "a repository's `URL`; may be given more than once")
	keys.addTrustFlags(f)
	return cmd
}

func (g *globals) mayStart(ctx context.Context, setup *supervisor.Setup, repositories []string, flags *keyFlags) error {
	if setup.DataDir == "" {
		return usageError{errors.New("no data directory: give --data-dir DIR")}
	}
	keys, err := flags.parse(g)
	if err != nil {
		return err
	}
	cfg := &host.Config{Member: setup.MemberConfig, StateDir: setup.StateDir}
	cfg.Member.Kind = supervisor.Command // of which nothing is asked
	warnings, err := host.MayStart(ctx, cfg, repositories, keys)
	for _, w := range warnings {
		g.note("%s", w)
	}
	if err != nil {
		return fmt.Errorf("the member must not be started: %w", err)
	}
	return nil
}
