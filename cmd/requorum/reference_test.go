package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write generated files anew")

// docs/commands.md is the help of every command, so that it stays true.
func TestCommandReference(t *testing.T) {
	var doc bytes.Buffer
	fmt.Fprint(&doc, "# Commands\n\nThe help of every command, as `requorum help COMMAND` prints it. Made by\n`go test ./cmd/requorum -run TestCommandReference -update`.\n")
	root := newRootCommand(environment{stdin: &bytes.Buffer{}, stdout: &doc, stderr: io.Discard, getenv: func(string) string { return "" }})
	root.InitDefaultCompletionCmd()
	addReference(t, &doc, root)
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "completion" {
			addReference(t, &doc, c)
			for _, below := range c.Commands() {
				addReference(t, &doc, below)
			}
		}
	}
	path := filepath.Join("..", "..", "docs", "commands.md")
	if *update {
		require.NoError(t, os.WriteFile(path, doc.Bytes(), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	if !bytes.Equal(got, doc.Bytes()) {
		t.Errorf("%s is not the commands' help any more: run this test with -update", path)
	}
}

func addReference(t *testing.T, doc *bytes.Buffer, c *cobra.Command) {
	t.Helper()
	fmt.Fprintf(doc, "\n## %s\n\n```\n", c.CommandPath())
	require.NoError(t, c.Help())
	fmt.Fprint(doc, "```\n")
}
