package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// settingsOf runs a command that only remembers its options.
func settingsOf(t *testing.T, env map[string]string, args ...string) (repo []string, level string, verbose bool, err error) {
	t.Helper()
	g := &globals{environment: environment{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(k string) string { return env[k] }}}
	root := &cobra.Command{Use: "requorum", SilenceErrors: true, SilenceUsage: true}
	g.addFlags(root.PersistentFlags())
	var o backupOptions
	backup := &cobra.Command{Use: "backup", RunE: func(cmd *cobra.Command, _ []string) error { return applySettings(cmd, g) }}
	o.addFlags(backup.Flags())
	root.AddCommand(backup)
	root.SetArgs(append([]string{"backup"}, args...))
	err = root.ExecuteContext(t.Context())
	return o.repo.urls, string(o.level), g.verbose, err
}

func TestSettingsOrder(t *testing.T) {
	env := map[string]string{"REQUORUM_REPO": "file:///e1 file:///e2", "REQUORUM_COMPRESSION_LEVEL": "default", "REQUORUM_VERBOSE": "true"}
	for _, c := range []struct {
		name  string
		env   map[string]string
		args  []string
		repo  string
		level string
	}{
		{"flag over environment", env, []string{"--repo", "file:///a", "--compression-level", "fastest"}, "file:///a", "fastest"},
		{"environment", env, nil, "file:///e1,file:///e2", "default"},
		{"default", nil, nil, "", "fastest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo, level, verbose, err := settingsOf(t, c.env, c.args...)
			require.NoError(t, err)
			if got := strings.Join(repo, ","); got != c.repo || level != c.level {
				t.Errorf("repo %s, level %s; want %s, %s", got, level, c.repo, c.level)
			}
			if verbose != (c.env != nil) {
				t.Error("a global option in the environment was ignored")
			}
		})
	}
}

// Promise 4: an option that is not supported is an error that says where.
func TestPromise4UnknownSettings(t *testing.T) {
	_, _, _, err := settingsOf(t, map[string]string{"REQUORUM_TIMEOUT": "soon"})
	if err == nil || !strings.Contains(err.Error(), "REQUORUM_TIMEOUT") || exitCode(t.Context(), err) != exitUsage {
		t.Fatalf("got %v, want an error of usage that names the variable", err)
	}
	_, _, _, err = settingsOf(t, nil, "--wal-dir", "")
	require.ErrorContains(t, err, "--wal-dir has no value", "an option without a value")
}

// REQUORUM_AGENT_CONFIG names the agent's file, as REQUORUM_RECOVER_CONFIG that of a
// recovery: they are of different kinds.
func TestVariableOfConfig(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "/from/environment.yaml"},
		{[]string{"--config", "/from/line.yaml"}, "/from/line.yaml"},
	} {
		env := map[string]string{"REQUORUM_CONFIG": "/of/nobody.yaml", "REQUORUM_AGENT_CONFIG": "/from/environment.yaml"}
		g := &globals{environment: environment{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(k string) string { return env[k] }}}
		root := &cobra.Command{Use: "requorum", SilenceErrors: true, SilenceUsage: true}
		g.addFlags(root.PersistentFlags())
		var file string
		agent := &cobra.Command{Use: "agent", RunE: func(cmd *cobra.Command, _ []string) error { return applySettings(cmd, g) }}
		agent.Flags().StringVar(&file, "config", "", "")
		root.AddCommand(agent)
		root.SetArgs(append([]string{"agent"}, c.args...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		if file != c.want {
			t.Errorf("%v: file %s, want %s", c.args, file, c.want)
		}
	}
}
