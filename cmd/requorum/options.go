package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/walreplay"
)

// parsed is an option that is read where it is declared, wherever it was given: what
// cannot be read is wrong usage, before anything is done.
type parsed[T any] struct {
	to      *T
	text    string
	parse   func(string) (T, error)
	kind    string // as help calls its values, where the description does not
	choices []string
}

func (v *parsed[T]) Set(s string) error {
	value, err := v.parse(s)
	if err == nil {
		*v.to, v.text = value, s
	}
	return err
}

func (v *parsed[T]) String() string   { return v.text }
func (v *parsed[T]) Type() string     { return v.kind }
func (v *parsed[T]) values() []string { return v.choices }

// parsedVar declares an option; an empty value leaves *to as it is.
func parsedVar[T any](f *pflag.FlagSet, to *T, name, value, usage string, parse func(string) (T, error)) {
	v := &parsed[T]{to: to, parse: parse, kind: "string", text: value}
	if value != "" {
		if err := v.Set(value); err != nil {
			panic(fmt.Sprintf("the default of --%s: %v", name, err))
		}
	}
	f.Var(v, name, usage)
}

// choiceVar declares an option with a few fixed values.
func choiceVar[T ~string](f *pflag.FlagSet, to *T, name string, value T, usage string, all ...T) {
	f.Var(choice(to, value, all...), name, usage)
}

func choice[T ~string](to *T, value T, all ...T) pflag.Value {
	*to = value
	var names []string
	for _, one := range all {
		names = append(names, string(one))
	}
	return &parsed[T]{to: to, text: string(value), kind: "string", choices: names, parse: func(s string) (T, error) {
		if !slices.Contains(names, s) {
			return "", errors.New("want " + strings.Join(names, ", "))
		}
		return T(s), nil
	}}
}

// completeChoices offers the values of such options to the shell.
func completeChoices(c *cobra.Command) {
	offer := func(f *pflag.Flag) {
		if v, ok := f.Value.(interface{ values() []string }); ok && len(v.values()) > 0 {
			// It fails only for a flag that is not there, or twice.
			c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.values(), cobra.ShellCompDirectiveNoFileComp)) //nolint:errcheck // see above
		}
	}
	c.LocalNonPersistentFlags().VisitAll(offer)
	c.PersistentFlags().VisitAll(offer)
}

// durationVar declares a length of time, written as in a configuration: 90s, 1h30m, 7d,
// 2w. What is shorter than least is refused.
func durationVar(f *pflag.FlagSet, d *time.Duration, name string, value, least time.Duration, usage string) {
	*d = value
	text := "0" // which help leaves out
	if value != 0 {
		text = yamlfile.Duration(value).String()
	}
	f.Var(&parsed[time.Duration]{to: d, text: text, kind: "duration", parse: func(s string) (time.Duration, error) {
		d, err := yamlfile.ParseDuration(s)
		if err == nil && d.Std() < least {
			err = fmt.Errorf("want %s at least", yamlfile.Duration(least))
		}
		return d.Std(), err
	}}, name, usage)
}

// bytesVar declares a number of bytes, or of bytes a second, written as in a configuration:
// 512KiB, 50MiB, 50MiB/s.
func bytesVar(f *pflag.FlagSet, n *int64, name, value, usage string) {
	parsedVar(f, n, name, value, usage, func(s string) (int64, error) {
		n, err := yamlfile.ParseBytes(s)
		if err != nil || n == 0 {
			return 0, errors.New("want bytes, such as 50MiB")
		}
		return int64(n), nil
	})
}

func replayEngineVar(f *pflag.FlagSet, engine *walreplay.ReplayEngine) {
	choiceVar(f, engine, "replay-engine", walreplay.DefaultEngine, "what applies the log: bulk (etcd's applier where it does not know something), etcd (its applier alone), or both, which are compared",
		walreplay.EtcdEngine, walreplay.BulkEngine, walreplay.BothEngines)
}

// flagError names the option and its value before what is wrong with it.
func flagError(err error) error {
	bad := new(pflag.InvalidValueError)
	if !errors.As(err, &bad) {
		return err
	}
	why := bad.Unwrap()
	if errors.As(why, new(*strconv.NumError)) {
		why = errors.New("want a whole number")
	}
	return fmt.Errorf("--%s %s: %w", bad.GetFlag().Name, bad.GetValue(), why)
}
