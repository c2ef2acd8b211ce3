package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// errDeclined says that the answer was no.
var errDeclined = errors.New("it was not confirmed: nothing was changed")

// question is one that is asked before something is changed.
type question struct {
	text string
	// typed is what has to be typed, where a yes is not enough.
	typed string
}

// confirm asks on the terminal, unless the options have answered already. Where
// nobody could answer it is wrong usage, and says what to give.
func (g *globals) confirm(ctx context.Context, o *recoverOptions, q question) error {
	if q.typed != "" && o.acceptLoss != "" {
		if o.acceptLoss == q.typed {
			return nil
		}
		return usageError{fmt.Errorf("--accept-loss %s: acknowledged writes may be lost, and they are those of %s: read what is said of them, and give that name if it is to be accepted", o.acceptLoss, q.typed)}
	}
	if q.typed == "" && (o.yes || o.acceptLoss != "") {
		return nil
	}
	file, ok := g.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || g.output == "json" {
		if q.typed != "" {
			return usageError{fmt.Errorf("nobody is there to ask, and acknowledged writes may be lost: read what is said of them, and accept it with --accept-loss %s", q.typed)}
		}
		return usageError{errors.New("nobody is there to ask: give --yes")}
	}
	want := "yes"
	if q.typed != "" {
		want = q.typed
		g.prompt("%s Acknowledged writes may be lost. Type %s to go on: ", q.text, q.typed)
	} else {
		g.prompt("%s Type yes to go on: ", q.text)
	}
	answer, err := readLine(ctx, file)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer != want {
		return errDeclined
	}
	return nil
}

// prompt writes to standard error, beside what is printed.
func (g *globals) prompt(format string, args ...any) {
	fmt.Fprintf(g.stderr, format, printable(args)...)
}

// readLine reads an answer, or gives up with the context.
func readLine(ctx context.Context, from io.Reader) (string, error) {
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		line, err := bufio.NewReader(from).ReadString('\n')
		done <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-done:
		if errors.Is(r.err, io.EOF) {
			r.err = nil // the end of the input is no answer
		}
		return strings.TrimSpace(r.line), r.err
	}
}
