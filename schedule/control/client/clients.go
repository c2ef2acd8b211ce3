package client

import (
	"context"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Quiesce stops the host's clients, in their order, and gives the proof of each;
// those that are to be restarted only are left alone.
func (c *Client) Quiesce(ctx context.Context) (*protocol.Done, error) {
	return c.act(ctx, protocol.QuiescePath, protocol.Action{})
}

// Resume starts the clients that Quiesce stopped, in the reverse order, then
// restarts those that are to be. Where nothing was quiesced it does nothing, and
// Done.Warnings says so.
func (c *Client) Resume(ctx context.Context) (*protocol.Done, error) {
	return c.act(ctx, protocol.ResumePath, protocol.Action{})
}
