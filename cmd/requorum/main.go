// Command requorum is backup, point-in-time recovery and disaster recovery for
// etcd. See `requorum help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
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
	root := newRootCommand(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	if err != nil && !errors.Is(err, errReported) {
		fmt.Fprintf(env.stderr, "requorum: %s\n", printableLines(err.Error()))
		if code == exitUsage {
			fmt.Fprintln(env.stderr, "See 'requorum help' or add --help to the command.")
		}
	}
	return code
}

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

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
