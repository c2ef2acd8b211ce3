package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// applySettings fills the flags that the command line does not set from the
// environment, and refuses those without a value.
func applySettings(cmd *cobra.Command, g *globals) error {
	flags := cmd.Flags()
	var err error
	flags.Visit(func(f *pflag.Flag) {
		g.typed = append(g.typed, f.Name)
		if slices.Contains(valuesOf(f), "") {
			err = errors.Join(err, fmt.Errorf("--%s has no value", f.Name))
		}
	})
	flags.VisitAll(func(f *pflag.Flag) {
		name := environmentName(f.Name)
		if f.Name == "config" { // an agent's and a recovery's are of different kinds
			name = environmentName(cmd.Name() + "-config")
		}
		if value := g.getenv(name); value != "" && !f.Changed && f.Name != "help" {
			if e := setFlag(flags, f, splitEnvironment(value)); e != nil {
				err = errors.Join(err, fmt.Errorf("environment variable %s: %w", name, e))
			}
		}
	})
	for option := range removedOptions[cmd.Name()] {
		if name := environmentName(option); g.getenv(name) != "" && !hasOption(cmd.Root(), option) {
			err = errors.Join(err, fmt.Errorf("environment variable %s: %w", name, removedOption(cmd, option)))
		}
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

func environmentName(flag string) string {
	return "REQUORUM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// splitEnvironment takes several URLs in one variable apart, where a space or a
// new line stands between them: a comma may be part of one.
func splitEnvironment(value string) []string {
	parts := strings.Fields(value)
	if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(p, "://") }) {
		return []string{value}
	}
	return parts
}

// valuesOf are the texts that a flag has where it takes any.
func valuesOf(f *pflag.Flag) []string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	if f.Value.Type() == "string" {
		return []string{f.Value.String()}
	}
	return nil
}

// setFlag sets a flag, a list from several values.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, values []string) error {
	list, isList := f.Value.(pflag.SliceValue)
	switch {
	case len(values) == 1: // "a,b", as on the command line
		return flagError(flags.Set(f.Name, values[0]))
	case !isList:
		return fmt.Errorf("want one value, not %d", len(values))
	}
	f.Changed = true
	return list.Replace(values)
}
