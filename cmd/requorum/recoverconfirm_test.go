package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// A yes is enough where nothing can be lost; otherwise the name has to be typed, and
// a yes is a no. Options answer just what they say.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		o       recoverOptions
		typed   string
		preview *recovery.Preview
		input   string // empty: there is no terminal
		want    error
		says    string
	}{
		{name: "yes", input: "yes\n"},
		{name: "no", input: "no\n", want: errDeclined},
		{name: "nothing", input: "\n", want: errDeclined},
		{name: "a name that is typed", typed: "prod", input: "prod\n"},
		{name: "yes where a name is wanted", typed: "prod", input: "yes\n", want: errDeclined},
		{name: "--yes", o: recoverOptions{yes: true}},
		{name: "--yes where a name is wanted", o: recoverOptions{yes: true}, typed: "prod", says: "--accept-loss prod"},
		{name: "--yes where a name is wanted, at a terminal", o: recoverOptions{yes: true}, typed: "prod", input: "prod\n"},
		{name: "--accept-loss", o: recoverOptions{acceptLoss: "prod"}, typed: "prod"},
		{name: "--accept-loss of another", o: recoverOptions{acceptLoss: "test"}, typed: "prod", says: "those of prod"},
		{name: "--accept-loss where nothing is lost", o: recoverOptions{acceptLoss: "prod"}},
		{name: "no terminal", says: "give --yes"},
		{name: "no terminal, unproven so far", preview: &recovery.Preview{Cluster: "prod", Plan: &sources.Plan{Chosen: "m1"}}, says: "give --yes, and --accept-loss prod, since it would be unproven"},
		{name: "no terminal, nothing is read yet", preview: &recovery.Preview{Cluster: "prod", Plan: &sources.Plan{}}, says: "--accept-loss prod, since it may be unproven"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &globals{environment: environment{stdin: strings.NewReader("yes\n"), stderr: new(bytes.Buffer)}}
			if c.input != "" {
				keyboard, screen := terminal(t)
				_, err := keyboard.WriteString(c.input)
				require.NoError(t, err)
				g.stdin = screen
			}
			err := g.confirm(t.Context(), &c.o, recovery.Question{Text: "Go?", Type: c.typed, Preview: c.preview})
			if c.says != "" {
				var usage usageError
				if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want wrong usage that says %q", err, c.says)
				}
				return
			}
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
