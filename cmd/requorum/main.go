// Command requorum is backup, point-in-time recovery and disaster recovery for
// etcd. See `requorum help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/api/v3/version"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
	}))
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, env environment) int {
	ctx, stop := interruptible(ctx)
	defer stop()
	out := &keptError{to: env.stdout}
	env.stdout = out
	root := newRootCommand(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if out.err != nil { // a result that nobody gets is a failure, whatever it says
		text := ""
		if err != nil && !errors.Is(err, errReported) && !errors.Is(err, out.err) {
			text = "\n" + err.Error()
		}
		err = fmt.Errorf("the result could not be written to standard output: %w%s", out.err, text)
	}
	code := exitCode(ctx, err)
	if err != nil && !errors.Is(err, errReported) {
		text := err.Error()
		if code == exitInterrupted {
			text = interruptedText(err)
		}
		fmt.Fprintf(env.stderr, "requorum: %s\n", printableLines(text))
		if code == exitUsage && !errors.As(err, new(configError)) {
			fmt.Fprintln(env.stderr, "See 'requorum help' or add --help to the command.")
		}
	}
	return code
}

// keptError keeps the first error of writing, which fmt's callers let go.
type keptError struct {
	to  io.Writer
	err error
}

func (o *keptError) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// interruptedError says what a command had changed when a signal ended it.
type interruptedError struct {
	err     error
	changed string
}

func (e *interruptedError) Error() string { return e.err.Error() }
func (e *interruptedError) Unwrap() error { return e.err }

// ifInterrupted adds to an error of a command that a signal ended what it had
// changed by then.
func ifInterrupted(ctx context.Context, err error, changed string) error {
	if err == nil || !errors.Is(context.Cause(ctx), errInterrupted) {
		return err
	}
	return &interruptedError{err, changed}
}

// interruptedText leaves out which of a hundred calls the signal met. A command that
// does not say what it had changed may say so in its error.
func interruptedText(err error) string {
	var known *interruptedError
	if errors.As(err, &known) {
		return "interrupted; " + known.changed
	}
	text := strings.ReplaceAll(err.Error(), context.Canceled.Error(), errInterrupted.Error())
	if !strings.Contains(text, errInterrupted.Error()) {
		text = "interrupted: " + text
	}
	return text
}

// interruptible ends the context at the first SIGINT or SIGTERM, so that work
// stops cleanly. A second signal ends the process as usual.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// Exit codes. They are documented in docs/commands.md and do not change.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDamaged     = 3
	exitNothing     = 4
	exitIncomplete  = 5
	exitUnproven    = 6
	exitStartedOver = 7
	exitInterrupted = 130
)

// exitHelp ends the help of every command that has more than a line.
const exitHelp = `

Exit status:
  0  done
  1  failed
  2  wrong usage
  3  the backup or the log was found damaged
  4  there is nothing to restore or show that matches
  5  incomplete: some repositories, members or clients failed, the others are done
  6  done, or planned so, but unproven: acknowledged writes may be missing, or a
     database and a log may be of two histories
  7  the cluster began again without archived writes, and nobody has answered that
  130  interrupted`

// errReported says that the command has shown the user already what is wrong.
var errReported = errors.New("reported")

// errUnproven says that all was done, and that acknowledged writes may be missing.
var errUnproven = errors.New("unproven")

// usageError is an error in how the command was called.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// configError is a usageError about a configuration file, to which --help adds nothing.
type configError struct{ usageError }

func (e configError) Unwrap() error { return e.usageError }

func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var damaged *snapshot.DamagedError
	var incomplete snapshot.IncompleteError
	var log *walfile.CorruptError
	var fork *segment.ForkError
	var request *restore.RequestError
	var need *sources.NeedSourceError
	var source *sources.SourceError
	var over *snapshot.StartedOverError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(context.Cause(ctx), errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage) && errors.As(err, &over): // a wrong timeline was accepted
		return exitUsage
	case errors.As(err, &over):
		return exitStartedOver
	case errors.As(err, &usage), errors.As(err, &request), errors.As(err, &need), errors.As(err, &source), errors.Is(err, snapshot.ErrAmbiguous):
		return exitUsage
	case errors.As(err, &incomplete):
		return exitIncomplete
	case errors.As(err, &damaged), errors.As(err, &log), errors.As(err, &fork):
		return exitDamaged
	case errors.Is(err, snapshot.ErrNoBackup), errors.Is(err, snapshot.ErrNoAttachments):
		return exitNothing
	case errors.Is(err, errUnproven):
		return exitUnproven
	}
	return exitFailed
}

// version is set when a release is built (-ldflags "-X main.version=1.2.3").
var version = "dev"

type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	// Etcd is the version of the bundled store, which is also the newest that
	// backups are read from and clusters restored for.
	Etcd string `json:"etcd"`
}

func newVersionCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of requorum and of the bundled etcd",
		RunE: func(*cobra.Command, []string) error {
			v := versionReport{Version: version, Go: runtime.Version(), Etcd: etcd.Version}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			if g.output == "json" {
				return g.printJSON(v)
			}
			fmt.Fprintf(g.stdout, "requorum %s\netcd %s\n%s %s/%s\n", v.Version, v.Etcd, v.Go, runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
