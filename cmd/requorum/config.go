package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/safedir"
)

// notInConfig are options that make no sense in a file or the environment.
var notInConfig = []string{"config", "help"}

// applySettings fills the flags that the command line does not set from the
// environment, and those that neither sets from the configuration file. What
// the file has and no command knows is an error, as is an option of this
// command that cannot be set.
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
		name, fixed := environmentName(f.Name), slices.Contains(notInConfig, f.Name)
		if f.Name == "config" && ownConfig(cmd) {
			name, fixed = ownConfigVariable(cmd), false
		}
		if value := g.getenv(name); value != "" && !f.Changed && !fixed {
			if e := setFlag(flags, f, splitEnvironment(value)); e != nil {
				err = errors.Join(err, fmt.Errorf("environment variable %s: %w", name, e))
			}
		}
	})
	if err != nil {
		return usageError{err}
	}
	if ownConfig(cmd) {
		return nil
	}
	if g.config == "" {
		g.config = g.getenv(environmentName("config"))
	}
	if g.config == "" {
		return nil
	}
	if err := safedir.TrustedFile(g.config); err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	data, err := sinks.ReadFile(g.config, sinks.SmallFile)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	settings, err := parseConfig(data, cmd.Root())
	if err != nil {
		return usageError{fmt.Errorf("configuration file %s: %w", g.config, err)}
	}
	for _, s := range settings {
		f := flags.Lookup(s.option)
		if f == nil || f.Changed || s.command != "" && s.command != cmd.Name() {
			continue
		}
		if err := setFlag(flags, f, s.values); err != nil {
			return usageError{fmt.Errorf("configuration file %s, line %d: %s: %w", g.config, s.line, s.option, err)}
		}
	}
	return nil
}

// ownConfig reports whether a command has a --config of its own in place of the
// file of options: the agent's and a recovery's, which are of another kind. Where
// it is not given, a variable of its own names it.
func ownConfig(cmd *cobra.Command) bool {
	return cmd.Flags().Lookup("config") != cmd.Root().PersistentFlags().Lookup("config")
}

// agentConfigVariable names the agent's configuration for all commands.
const agentConfigVariable = "REQUORUM_AGENT_CONFIG"

// recoverConfigVariable names the cluster file of `requorum recover`.
const recoverConfigVariable = "REQUORUM_RECOVER_CONFIG"

func ownConfigVariable(cmd *cobra.Command) string {
	if cmd.Name() == recoverCommand {
		return recoverConfigVariable
	}
	return agentConfigVariable
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
	switch v := f.Value.(type) {
	case pflag.SliceValue:
		return v.GetSlice()
	default:
		if f.Value.Type() == "string" {
			return []string{f.Value.String()}
		}
	}
	return nil
}

// setFlag sets a flag, a list from several values.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		if len(values) == 1 { // "a,b", as on the command line
			return flagError(flags.Set(f.Name, values[0]))
		}
		f.Changed = true
		return list.Replace(values)
	}
	if len(values) != 1 {
		return fmt.Errorf("want one value, not %d", len(values))
	}
	return flagError(flags.Set(f.Name, values[0]))
}

// setting is one option in a configuration file.
type setting struct {
	command string // empty for one that stands at the top and holds for all
	option  string
	values  []string
	line    int
}

// parseConfig reads a configuration file: options by the names of their flags
// at the top level, where they hold for every command that has them, or under
// the name of a command, where they hold for that one and come before.
func parseConfig(data []byte, root *cobra.Command) ([]setting, error) {
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("there is more than one document: want one, without a line of dashes"), err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	var general, specific []setting
	err := eachEntry(doc.Content[0], func(key, value *yaml.Node) error {
		if c := commandNamed(root, key.Value); c != nil {
			if ownConfig(c) {
				return fmt.Errorf("line %d: %s has a configuration file of its own: see 'requorum help %s'", key.Line, key.Value, key.Value)
			}
			return eachEntry(value, func(key, value *yaml.Node) error {
				s, err := newSetting(c.Name(), key, value, func(option string) bool {
					return c.Flags().Lookup(option) != nil || root.PersistentFlags().Lookup(option) != nil
				})
				specific = append(specific, s)
				return err
			})
		}
		s, err := newSetting("", key, value, func(option string) bool { return anyCommandHas(root, option) })
		general = append(general, s)
		return err
	})
	return append(specific, general...), err
}

func eachEntry(n *yaml.Node, f func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want options, one a line, as \"name: value\"", n.Line)
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			return fmt.Errorf("line %d: %q stands there twice", key.Line, key.Value)
		}
		seen[key.Value] = true
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func newSetting(command string, key, value *yaml.Node, known func(string) bool) (setting, error) {
	s := setting{command: command, option: key.Value, line: key.Line}
	if !known(s.option) || slices.Contains(notInConfig, s.option) {
		return s, fmt.Errorf("line %d: unknown option %q: the options of the command line stand in this file (docs/configuration.md); an agent's is for 'requorum agent', a cluster's for 'requorum recover'", key.Line, s.option)
	}
	switch value.Kind {
	case yaml.ScalarNode:
		s.values = []string{value.Value}
	case yaml.SequenceNode:
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode {
				return s, fmt.Errorf("line %d: %s: want a list of plain values", item.Line, s.option)
			}
			s.values = append(s.values, item.Value)
		}
	case yaml.MappingNode: // labels and the like
		for i := 0; i < len(value.Content); i += 2 {
			if value.Content[i+1].Kind != yaml.ScalarNode {
				return s, fmt.Errorf("line %d: %s: want plain values", value.Content[i].Line, s.option)
			}
			s.values = append(s.values, value.Content[i].Value+"="+value.Content[i+1].Value)
		}
	default:
		return s, fmt.Errorf("line %d: %s: want a value or a list", value.Line, s.option)
	}
	if len(s.values) == 0 || slices.Contains(s.values, "") {
		return s, fmt.Errorf("line %d: %s has no value", value.Line, s.option)
	}
	return s, nil
}

func commandNamed(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

func anyCommandHas(root *cobra.Command, option string) bool {
	if root.PersistentFlags().Lookup(option) != nil {
		return true
	}
	return slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Flags().Lookup(option) != nil })
}
