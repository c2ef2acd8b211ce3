package main

import (
	"github.com/spf13/cobra"

	"github.com/requorum/requorum/verify/drill"
)

// newDrillMembersCommand is how a drill starts this program anew, to run its
// members apart: nobody else calls it.
func newDrillMembersCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:    drill.MembersCommand,
		Short:  "run the members of a drill (started by 'requorum verify --rung drill' only)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return drill.Members(cmd.Context(), g.stdin, g.stdout)
		},
	}
}
