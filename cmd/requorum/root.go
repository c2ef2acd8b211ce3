package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/store/yamlfile"
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
	output   string
	progress string
	verbose  bool
	// typed are the options that stand on the command line itself.
	typed []string
}

func (g *globals) addFlags(f *pflag.FlagSet) {
	f.VarP(choice(&g.output, "table", "table", "json"), "output", "o", "how to print results: table or json")
	choiceVar(f, &g.progress, "progress", "auto", "how to show progress: auto (one line on a terminal, else a line now and then), plain or none", "auto", "plain", "none")
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
		Use:     "requorum",
		Version: version,
		Short:   "Backup, point-in-time recovery and disaster recovery for etcd",
		Long: `requorum takes consistent snapshots of etcd and archives its raft log, keeps both
compressed on disk or in S3, and rebuilds a whole new cluster as it was at any
point.

Options may also come from the environment (REQUORUM_REPO for --repo, and so
on; the ETCDCTL_ variables of etcdctl for the connection). The command line wins.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return applySettings(cmd, g)
		},
	}
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	g.addFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root && cmd.Flags().NArg() > 0 { // the options are those of a command that is misspelt
			return usageError{unknownCommand(cmd, cmd.Flags().Arg(0))}
		}
		return usageError{misspeltOption(cmd, err)}
	})
	root.AddCommand(
		newDemoCommand(g),
		newStoreCommand(g),
		newBackupCommand(g),
		newListCommand(g),
		newShowCommand(g),
		newVerifyCommand(g),
		newRestoreCommand(g),
		newRecoverCommand(g),
		newHostCommand(g),
		newPruneCommand(g),
		newPinCommand(g),
		newUnpinCommand(g),
		newAcceptCommand(g),
		newDoctorCommand(g),
		newVersionCommand(g),
		newDrillMembersCommand(g),
		newAgentCommand(g),
	)
	complete(root)
	return root
}

// unknownCommand names the command that a misspelt one was meant to be.
func unknownCommand(root *cobra.Command, name string) error {
	if err := removedCommand(name); err != nil {
		return err
	}
	near := yamlfile.Nearest(name, func(yield func(string) bool) {
		for _, c := range root.Commands() {
			if !c.Hidden && !yield(c.Name()) {
				return
			}
		}
	})
	if near == "" {
		return fmt.Errorf("unknown command %q", name)
	}
	return fmt.Errorf("unknown command %q: did you mean %s?", name, near)
}

// misspeltOption names the option that a misspelt one was meant to be; of another error it
// says what flagError does.
func misspeltOption(cmd *cobra.Command, err error) error {
	if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
		if err := removedOption(cmd, unknown.GetSpecifiedName()); err != nil {
			return err
		}
		near := yamlfile.Nearest(unknown.GetSpecifiedName(), func(yield func(string) bool) {
			more := true
			cmd.Flags().VisitAll(func(f *pflag.Flag) { more = more && (f.Hidden || yield(f.Name)) })
		})
		if near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	return flagError(err)
}

// complete gives a command and those below it what all have: its help says what exit codes
// mean, it takes no arguments unless it says otherwise, wrong ones are usage errors, as
// wrong flags are already, the shell completes its choices, and one that only has others
// below it prints its help.
func complete(c *cobra.Command) {
	if c.RunE == nil {
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if c.Long != "" {
		c.Long += exitHelp
	}
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
	completeChoices(c)
	for _, below := range c.Commands() {
		complete(below)
	}
}
