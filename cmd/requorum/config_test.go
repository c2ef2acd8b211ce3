package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// settingsOf runs a command that only remembers its options.
func settingsOf(t *testing.T, file string, env map[string]string, args ...string) (repo []string, level string, verbose bool, err error) {
	t.Helper()
	g := &globals{environment: environment{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(k string) string { return env[k] }}}
	if file != "" {
		path := filepath.Join(t.TempDir(), "requorum.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	root := &cobra.Command{Use: "requorum", SilenceErrors: true, SilenceUsage: true}
	g.addFlags(root.PersistentFlags())
	var o backupOptions
	backup := &cobra.Command{Use: "backup", RunE: func(cmd *cobra.Command, _ []string) error { return applySettings(cmd, g) }}
	o.addFlags(backup.Flags())
	list := &cobra.Command{Use: "list"}
	list.Flags().Bool("only-list", false, "")
	root.AddCommand(backup, list)
	root.SetArgs(append([]string{"backup"}, args...))
	err = root.ExecuteContext(t.Context())
	return o.repo.urls, string(o.level), g.verbose, err
}

func TestSettingsOrder(t *testing.T) {
	file := "repo: file:///f\ncompression-level: best\nverbose: true\nbackup:\n  compression-level: better\n"
	env := map[string]string{"REQUORUM_REPO": "file:///e1 file:///e2", "REQUORUM_COMPRESSION_LEVEL": "default"}
	for _, c := range []struct {
		name  string
		file  string
		env   map[string]string
		args  []string
		repo  string
		level string
	}{
		{"flag over all", file, env, []string{"--repo", "file:///a", "--compression-level", "fastest"}, "file:///a", "fastest"},
		{"environment over file", file, env, nil, "file:///e1,file:///e2", "default"},
		{"a command's section over the top", file, nil, nil, "file:///f", "better"},
		{"default", "", nil, nil, "", "fastest"},
		{"list in the file", "repo: [file:///f, 'file:///g']\n", nil, nil, "file:///f,file:///g", "fastest"},
		{"option of another command", "only-list: true\n", nil, nil, "", "fastest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo, level, verbose, err := settingsOf(t, c.file, c.env, c.args...)
			require.NoError(t, err)
			if got := strings.Join(repo, ","); got != c.repo || level != c.level {
				t.Errorf("repo %s, level %s; want %s, %s", got, level, c.repo, c.level)
			}
			if c.file == file && !verbose {
				t.Error("a global option in the file was ignored")
			}
		})
	}
}

// Promise 4: an option that is not supported is an error that says where.
func TestPromise4UnknownSettings(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"misspelt", "repo: file:///f\nrepos: x\n", "line 2"},
		{"misspelt below a command", "backup:\n  lvl: best\n", `"lvl"`},
		{"of another command, below this one", "backup:\n  only-list: true\n", `"only-list"`},
		{"twice", "compression-level: best\ncompression-level: best\n", "twice"},
		{"not a list of options", "- a\n- b\n", "line 1"},
		{"several values for one", "compression-level: [best, better]\n", "one value"},
		{"not a value", "timeout: soon\n", "timeout"},
		{"nested", "repo:\n  - a: b\n", "plain values"},
		{"the file itself", "config: other.yaml\n", `"config"`},
		{"no value", "repo:\n", "no value"},
		{"an empty value", "passphrase-file: ''\n", "no value"},
		{"a second document", "compression-level: best\n---\nbogus: 1\n", "more than one document"},
		{"nested label", "label: {a: {b: c}}\n", "plain values"},
		{"no YAML", "a: b: c\n", "mapping"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := settingsOf(t, c.file, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
			if exitCode(t.Context(), err) != exitUsage {
				t.Errorf("exit code %d, want %d", exitCode(t.Context(), err), exitUsage)
			}
		})
	}
	if _, _, _, err := settingsOf(t, "", map[string]string{"REQUORUM_TIMEOUT": "soon"}); err == nil || !strings.Contains(err.Error(), "REQUORUM_TIMEOUT") {
		t.Fatalf("got %v, want an error that names the variable", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("repo: [a, b]\nbackup:\n  compression-level: best\n"))
	f.Add([]byte("a: &a [*a]\n"))
	root := &cobra.Command{Use: "requorum"}
	backup := &cobra.Command{Use: "backup"}
	var o backupOptions
	o.addFlags(backup.Flags())
	root.AddCommand(backup)
	f.Fuzz(func(_ *testing.T, data []byte) {
		parseConfig(data, root)
	})
}

// The agent's --config is another file than that of options, which it does not
// read; REQUORUM_AGENT_CONFIG names it, and REQUORUM_CONFIG does not.
func TestOwnConfig(t *testing.T) {
	options := filepath.Join(t.TempDir(), "options.yaml")
	require.NoError(t, os.WriteFile(options, []byte("verbose: true\nlevel: best\n"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "/from/environment.yaml"},
		{[]string{"--config", "/from/line.yaml"}, "/from/line.yaml"},
	} {
		env := map[string]string{"REQUORUM_CONFIG": options, "REQUORUM_AGENT_CONFIG": "/from/environment.yaml"}
		g := &globals{environment: environment{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(k string) string { return env[k] }}}
		root := &cobra.Command{Use: "requorum", SilenceErrors: true, SilenceUsage: true}
		g.addFlags(root.PersistentFlags())
		var file string
		agent := &cobra.Command{Use: "agent", RunE: func(cmd *cobra.Command, _ []string) error { return applySettings(cmd, g) }}
		agent.Flags().StringVar(&file, "config", "", "")
		root.AddCommand(agent)
		root.SetArgs(append([]string{"agent"}, c.args...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		if file != c.want || g.verbose || g.config != "" {
			t.Errorf("%v: file %s, want %s; options file %q, verbose %v", c.args, file, c.want, g.config, g.verbose)
		}
		if _, err := parseConfig([]byte("agent:\n  config: x\n"), root); err == nil || !strings.Contains(err.Error(), "of its own") {
			t.Errorf("a section for the agent among the options: %v", err)
		}
	}
}
