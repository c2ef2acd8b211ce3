package store

import (
	"context"

	"google.golang.org/grpc"
)

// Ask makes a request of the caller's own to a member, over the connection and
// with the login that this client has, and explains its error. That the answer is
// of that member the caller makes sure of, by its header. Only ctx bounds
// it, and whether it proposes an entry to the log is up to the caller.
func (c *Client) Ask(ctx context.Context, member MemberStatus, what string, do func(context.Context, grpc.ClientConnInterface) error) error {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return err
	}
	return c.call(ctx, e, what, func(ctx context.Context) error { return do(ctx, e.conn) })
}
