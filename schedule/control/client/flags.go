package client

import (
	"context"

	"github.com/requorum/requorum/schedule/control/flagfile"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// Flags brings the flags in line with which the stopped member will be started. An
// answer whose Done.Flags.ByHand is not empty says what a person has to change.
func (c *Client) Flags(ctx context.Context, wanted flagfile.Flags) (*protocol.Done, error) {
	return c.act(ctx, protocol.FlagsPath, protocol.Action{Flags: &wanted})
}
