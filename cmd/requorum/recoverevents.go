package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/rescue"
)

// rescueEvents tells how a recovery goes on, on standard error, and asks. With JSON
// it tells only what must not be overlooked.
type rescueEvents struct {
	g     *globals
	o     *recoverOptions // nil where nothing is asked
	meter *meter
	said  string // what is waited for, said last
}

func newRescueEvents(g *globals, o *recoverOptions) *rescueEvents {
	return &rescueEvents{g: g, o: o, meter: g.newMeter()}
}

func (e *rescueEvents) finish() { e.meter.finish() }

// say writes a line.
func (e *rescueEvents) say(format string, args ...any) {
	if e.meter.quiet {
		return
	}
	e.meter.finish()
	fmt.Fprintf(e.g.stderr, format+"\n", printable(args)...)
}

func (e *rescueEvents) Begin(phase rescue.Phase, host string) {
	if host == "" {
		e.say("%s …", phase)
	}
}

func (e *rescueEvents) End(phase rescue.Phase, host, detail string, elapsed time.Duration, err error) {
	what := string(phase)
	if host != "" {
		what = "  " + host + ": " + what
	}
	switch {
	case err != nil && host == "":
		// The command ends with it.
	case err != nil:
		e.say("%s failed after %s: %v", what, took(elapsed), err)
	case detail == "":
		e.say("%s: done in %s", what, took(elapsed))
	default:
		e.say("%s: %s, in %s", what, detail, took(elapsed))
	}
}

func (e *rescueEvents) Progress(phase rescue.Phase, host, what string, done, total int64) {
	if host != "" {
		what = host + ": " + what
	}
	if what == "" {
		what = string(phase)
	}
	e.meter.count(what, done, total)
}

func (e *rescueEvents) Waiting(phase rescue.Phase, text string) {
	if text != e.said {
		e.said = text
		e.say("  %s: waiting: %s", phase, text)
	}
}

func (e *rescueEvents) Note(text string) { e.say("note: %s", text) }

// Warn is never left out.
func (e *rescueEvents) Warn(text string) {
	e.meter.finish()
	e.lines("WARNING: ", text)
}

// lines writes a text that may have several of them, the later ones below the first.
func (e *rescueEvents) lines(mark, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(e.g.stderr, "%s%s\n", mark, printable([]any{line})[0])
		mark = strings.Repeat(" ", len(mark))
	}
}

// Confirm shows what would be done, and asks.
func (e *rescueEvents) Confirm(ctx context.Context, q rescue.Question) (bool, error) {
	e.meter.finish()
	shown := e.g.output != "json" && q.Prospect != nil
	if shown {
		if err := e.g.printProspect(q.Prospect); err != nil {
			return false, err
		}
		fmt.Fprintln(e.g.stdout)
	}
	for _, reason := range q.Reasons {
		if shown && slices.Contains(q.Prospect.Warnings, reason) {
			continue
		}
		e.lines("", reason)
	}
	err := e.g.confirm(ctx, e.o, question{text: q.Text, typed: q.Type})
	if errors.Is(err, errDeclined) {
		return false, nil // what follows from it is not for us to say
	}
	return err == nil, err
}
