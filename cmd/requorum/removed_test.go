package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestRemovedOptions_Given_RefusedWithReplacement runs each removed command, and each
// removed option on the command line and as an environment variable.
func TestRemovedOptions_Given_RefusedWithReplacement(t *testing.T) {
	refused := func(t *testing.T, instead string, variable string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		env := environment{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, getenv: func(name string) string {
			if name == variable {
				return "value"
			}
			return ""
		}}
		if code := run(t.Context(), args, env); code != exitUsage {
			t.Errorf("requorum %q with %s set: exit code %d, want %d", args, variable, code, exitUsage)
		}
		if stdout.Len() > 0 || !strings.Contains(stderr.String(), instead) {
			t.Errorf("requorum %q with %s set printed %q and %q, want %q", args, variable, &stdout, &stderr, instead)
		}
	}
	for name, instead := range removedCommands {
		refused(t, instead, "", name, "--any-option", "value")
	}
	root := newRootCommand(environment{})
	for command, options := range removedOptions {
		words := strings.Fields(command)
		for option, instead := range options {
			refused(t, instead, "", append(words, "--"+option)...)
			refused(t, instead, "", append(words, "--"+option+"=value")...)
			if !hasOption(root, option) { // else the variable is another command's
				refused(t, instead, environmentName(option), words...)
			}
		}
	}
}
