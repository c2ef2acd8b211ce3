package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// environment is what a command may use of the process, so that tests can give
// it another one.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// globals are the options of every command.
type globals struct {
	environment
	config   string
	output   string
	progress string
	verbose  bool
	// typed are the options that stand on the command line itself.
	typed []string
}

func (g *globals) addFlags(f *pflag.FlagSet) {
	f.StringVar(&g.config, "config", "", "read options from this YAML `file` (see docs/configuration.md)")
	f.StringVarP(&g.output, "output", "o", "table", "how to print results: table or json")
	f.StringVar(&g.progress, "progress", "auto", "how to show progress: auto, bar, plain or none")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "log what is done, to standard error")
}

// logger writes to standard error, so that standard output stays parseable.
func (g *globals) logger() *slog.Logger {
	level := slog.LevelWarn
	if g.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(g.stderr, &slog.HandlerOptions{Level: level}))
}

func (g *globals) check() error {
	if err := oneOf("output", g.output, "table", "json"); err != nil {
		return err
	}
	return oneOf("progress", g.progress, "auto", "bar", "plain", "none")
}

// durationFlag reads a length of time as a configuration does: 90s, 1h30m, 7d, 2w.
type durationFlag struct{ d *time.Duration }

func durationVar(f *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var(durationFlag{d}, name, usage)
}

func (v durationFlag) Set(s string) error {
	d, err := yamlfile.ParseDuration(s)
	if err == nil {
		*v.d = d.Std()
	}
	return err
}

func (v durationFlag) String() string {
	if v.d == nil || *v.d == 0 {
		return "0" // which help leaves out
	}
	return yamlfile.Duration(*v.d).String()
}

func (durationFlag) Type() string { return "duration" }

// oneOf refuses a value that an option does not have.
func oneOf(option, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return usageError{fmt.Errorf("--%s %s: want %s", option, value, strings.Join(allowed, ", "))}
}

// unfit refuses options on the command line that would be ignored.
func (g *globals) unfit(why string, options ...string) error {
	for _, name := range options {
		if slices.Contains(g.typed, name) {
			return usageError{fmt.Errorf("--%s is of no use %s", name, why)}
		}
	}
	return nil
}

func newRootCommand(env environment) *cobra.Command {
	g := &globals{environment: env}
	root := &cobra.Command{
		Use:   "requorum",
		Short: "Backup, point-in-time recovery and disaster recovery for etcd",
		Long: `requorum takes consistent snapshots of etcd and archives its raft log, keeps both
compressed on disk or in S3, and rebuilds a whole new cluster as it was at any
point.

Options may also come from the environment (REQUORUM_REPO for --repo, and so
on; the ETCDCTL_ variables of etcdctl for the connection) and from a file given
with --config. The command line wins over the environment, and that over the
file.
` + exitHelp,
		Args:              cobra.NoArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := applySettings(cmd, g); err != nil {
				return err
			}
			return g.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	g.addFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagError(err)} })
	root.AddCommand(
		newDemoCommand(g),
		newStoreCommand(g),
		newBackupCommand(g),
		newArchiveCommand(g),
		newListCommand(g),
		newShowCommand(g),
		newVerifyCommand(g),
		newRestoreCommand(g),
		newRecoverCommand(g),
		newHostCommand(g),
		newPruneCommand(g),
		newPinCommand(g),
		newUnpinCommand(g),
		newAttachmentsCommand(g),
		newSignCommand(g),
		newKeysCommand(g),
		newDoctorCommand(g),
		newVersionCommand(g),
		newDrillMembersCommand(g),
		newAgentCommand(g),
		newAgentJobCommand(g),
	)
	for _, c := range append(root.Commands(), root) {
		asUsageErrors(c)
	}
	completeFixed(root)
	return root
}

// flagError words what Go's parser of numbers says of a mistyped one.
func flagError(err error) error {
	if number := new(strconv.NumError); errors.As(err, &number) {
		option, _, _ := strings.Cut(err.Error(), ": strconv.")
		return fmt.Errorf("%s: want a whole number", option)
	}
	return err
}

// completeFixed offers the values of options that have a few fixed ones.
func completeFixed(root *cobra.Command) {
	values := map[string][]string{
		"output":            {"table", "json"},
		"progress":          {"auto", "bar", "plain", "none"},
		"compression-level": {"fastest", "default", "better", "best"},
		"engine":            {"requorum", "etcdutl"},
		"replay-engine":     {string(walreplay.EtcdEngine), string(walreplay.BulkEngine), string(walreplay.BothEngines)},
		"level":             report.LevelNames(),
	}
	for _, c := range append(root.Commands(), root) {
		for name, v := range values {
			if c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil {
				// It fails only for a flag that is not there, or twice.
				c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp)) //nolint:errcheck // see above
			}
		}
	}
}

// asUsageErrors turns wrong arguments of a command into usage errors, as its
// wrong flags are already.
func asUsageErrors(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
